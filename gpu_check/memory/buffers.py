"""One allocation for the whole KV cache, and the views that vLLM's layers get of it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import prod
from typing import Any

import torch

from gpu_check.memory.dtypes import torch_dtype
from gpu_check.memory.layout import LayerPlace
from sim.specs import AttentionSpec, MambaSpec
from sim.units import dtype_bytes

COPIED_BYTES = 32 << 20
"""Bytes that a probe copies at a time, so that a pool may take nearly all of a device."""


class Buffers:
    """``num_bytes`` of memory on ``device``, zeroed, and each layer's view of its part.

    All views alias the one allocation (vllm 0.33.0 v1/worker/utils.py:564). Raises torch.OutOfMemoryError, or
    RuntimeError on a CPU, where the memory is not there.
    """

    def __init__(self, places: Sequence[LayerPlace], num_bytes: int, device: Any) -> None:
        self.places = tuple(places)
        self.raw = torch.zeros(num_bytes, dtype=torch.int8, device=device)

    def pages(self, place: LayerPlace) -> Any:
        """The layer's bytes: int8 [blocks, heads, states, content]."""
        return torch.as_strided(self.raw, place.shape, place.strides, place.offset)

    def cache(self, place: LayerPlace) -> Any:
        """The layer's cache in its own dtype, content counted in elements; bytes for a layer of states."""
        pages = self.pages(place)
        return pages.view(torch_dtype(place.spec.dtype)) if isinstance(place.spec, AttentionSpec) else pages

    def keys_values(self, place: LayerPlace) -> tuple[Any, Any]:
        """Keys and values [blocks, tokens, heads, size]: the content is the one behind the other.

        A latent cache has no values of its own; its second view is empty (vllm 0.33.0
        v1/attention/backends/flash_attn.py:1257, flash_attn_diffkv.py:193).
        """
        spec = place.spec
        assert isinstance(spec, AttentionSpec)
        by_token = self.cache(place).transpose(1, 2)
        size_v = spec.head_size if spec.head_size_v is None else spec.head_size_v
        return by_token[..., : spec.head_size], by_token[..., spec.head_size : spec.head_size + size_v]

    def states(self, place: LayerPlace) -> tuple[Any, ...]:
        """The tensors of a layer's state, each [blocks, ...]: packed behind each other in the page.

        Convolution and SSM of a Mamba layer (vllm 0.33.0 model_executor/layers/mamba/abstract.py:28).
        """
        spec = place.spec
        assert isinstance(spec, MambaSpec)
        pages = self.pages(place).squeeze((1, 2))
        found, start = [], 0
        for shape, dtype in zip(spec.shapes, spec.dtypes, strict=True):
            end = start + prod(shape) * dtype_bytes(dtype)
            found.append(pages[:, start:end].view(torch_dtype(dtype)).unflatten(1, shape))
            start = end
        return tuple(found)

    @staticmethod
    def ranges(num_blocks: int, place: LayerPlace) -> Iterator[slice]:
        """``num_blocks`` blocks of the layer, as many at a time as a probe may make copies of."""
        step = max(1, COPIED_BYTES // max(place.page_bytes, 1))
        for first in range(0, num_blocks, step):
            yield slice(first, min(first + step, num_blocks))

    def address(self, view: Any) -> int:
        """The byte of the allocation at which a view's first element lies."""
        return int(view.data_ptr() - self.raw.data_ptr())
