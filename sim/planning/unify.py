"""Changing specs so that layers fit together: equal pages for all, or full attention for all."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from sim.errors import RefusalError
from sim.planning.uniform import is_uniform_type, merge_into_one
from sim.specs import FullAttentionSpec, Spec

LayerSpecs = Mapping[str, Spec]
"""The spec of each layer by name, in construction order."""


def unify_page_size(layers: LayerSpecs) -> LayerSpecs:
    """The same layers with pages as large as the largest one (vllm 0.33.0 v1/core/kv_cache_planning.py:346).

    A smaller page that divides the largest holds more tokens instead, its block size multiplied; one that does not is
    padded, and the difference is lost.

    >>> from sim.specs import SlidingWindowSpec
    >>> wide = FullAttentionSpec(16, 8, 256, "bfloat16")
    >>> narrow = SlidingWindowSpec(16, 8, 128, "bfloat16", sliding_window=512)
    >>> odd = SlidingWindowSpec(16, 8, 192, "bfloat16", sliding_window=512)
    >>> unified = unify_page_size({"wide": wide, "narrow": narrow, "odd": odd})
    >>> unified["narrow"].block_size, unified["odd"].block_size, {spec.page_size_bytes for spec in unified.values()}
    (32, 16, {131072})
    """
    largest = max(spec.page_size_bytes for spec in layers.values())
    return {name: _with_page_size(spec, largest) for name, spec in layers.items()}


def _with_page_size(spec: Spec, page_size: int) -> Spec:
    if spec.page_size_bytes == page_size:
        return spec
    ratio, rest = divmod(page_size, spec.page_size_bytes)
    if rest == 0:
        return replace(spec, block_size=spec.block_size * ratio)
    return replace(spec, page_size_padded=page_size)


def promote_to_full_attention(layers: LayerSpecs) -> LayerSpecs:
    """The layers as they are managed with ``--disable-hybrid-kv-cache-manager``: one kind for all.

    Where full attention stands beside windows, window layers keep every token too, and their window only as a note
    (vllm 0.33.0 v1/core/kv_cache_planning.py:744). Raises RefusalError when that still does not make them one kind:
    windows of different sizes, or block sizes that differ.
    """
    if not layers or _is_one_kind(layers):
        return layers
    block_sizes = sorted({spec.block_size for spec in layers.values() if spec.kind == "full_attention"})
    if block_sizes:
        common = block_sizes[0] if len(block_sizes) == 1 else None
        layers = {name: _promoted(spec, common or spec.block_size) for name, spec in layers.items()}
    if not _is_one_kind(layers):
        raise RefusalError(
            "the layers cannot be managed as one kind, as --disable-hybrid-kv-cache-manager demands: vLLM refuses to"
            " start; leave the hybrid KV cache manager on",
            where="engine.disable_hybrid_kv_cache_manager",
        )
    return layers


def _is_one_kind(layers: LayerSpecs) -> bool:
    specs = tuple(layers.values())
    return merge_into_one(specs) is not None or is_uniform_type(specs)


def _promoted(spec: Spec, block_size: int) -> Spec:
    if isinstance(spec, FullAttentionSpec):
        return spec
    padded = spec.page_size_padded
    if padded is not None:
        padded = max(padded, spec.unpadded_page_size_bytes * block_size // spec.block_size)
    return FullAttentionSpec(
        block_size=block_size,
        num_kv_heads=spec.num_kv_heads,
        head_size=spec.head_size,
        dtype=spec.dtype,
        head_size_v=spec.head_size_v,
        page_size_padded=padded,
        sliding_window=spec.sliding_window,
    )
