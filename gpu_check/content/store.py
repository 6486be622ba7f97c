"""The pool in memory: blocks are filled with NaN, copied, written and read, as a worker does it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from gpu_check.content.small import SmallCache, SmallLayer
from gpu_check.memory.buffers import Buffers

_ALL_ONES = -1
"""Every byte of a NaN, in float32, bfloat16 and float16."""


class Store:
    """The small cache of all layers on a device; every byte is part of a NaN at first."""

    def __init__(self, cache: SmallCache, device: Any) -> None:
        self.buffers = Buffers([layer.place for layer in cache.layers], cache.num_bytes, device)
        self.buffers.raw.fill_(_ALL_ONES)
        self._device = device
        layers = {(layer.place.offset, layer.place.strides): layer for layer in cache.layers}
        self._distinct = [self.buffers.pages(layer.place) for layer in layers.values()]
        self._caches = {layer.number: self._views(layer) for layer in cache.layers}

    def _views(self, layer: SmallLayer) -> tuple[Any, ...]:
        if layer.is_state:
            return self.buffers.states(layer.place)
        keys, values = self.buffers.keys_values(layer.place)
        return (keys, keys[..., : keys.shape[-1] // 2]) if layer.latent else (keys, values)

    def caches(self, layer: SmallLayer) -> tuple[Any, Any]:
        """Keys and values [blocks, tokens, heads, size], or a state's convolution and sum [blocks, ...].

        The values of a latent layer are the first half of its rows.
        """
        first, second = self._caches[layer.number]
        return first, second

    def poison(self, blocks: Sequence[int]) -> None:
        """Fill blocks with NaN, in all layers that use their bytes."""
        if blocks:
            there = torch.tensor(blocks, device=self._device)
            for pages in self._distinct:
                pages.index_fill_(0, there, _ALL_ONES)

    def copy(self, pairs: Sequence[Sequence[int]]) -> None:
        """Copy blocks, all sources read before any destination is written (vllm 0.33.0 v1/worker/utils.py:909)."""
        source, destination = torch.tensor(pairs, device=self._device).unbind(1)
        for pages in self._distinct:
            pages.index_copy_(0, destination, pages.index_select(0, source))
