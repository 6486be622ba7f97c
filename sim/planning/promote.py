"""Full attention for all: what the layers become when the hybrid manager is off."""

from __future__ import annotations

from collections.abc import Sequence

from sim.errors import RefusalError
from sim.planning.uniform import is_uniform_type, merge_into_one
from sim.planning.unify import LayerSpecs
from sim.specs import (
    AttentionSpec,
    ChunkedLocalAttentionSpec,
    FullAttentionSpec,
    SlidingWindowMLASpec,
    SlidingWindowSpec,
    Spec,
)

_SWITCH = "engine.disable_hybrid_kv_cache_manager"


def promote_to_full_attention(layers: LayerSpecs) -> LayerSpecs:
    """The layers as they are managed with ``--disable-hybrid-kv-cache-manager``: one kind for all.

    Layers that decode context parallelism replicates on every rank are made one kind by themselves (vllm 0.33.0
    v1/core/kv_cache_planning.py:853). Raises RefusalError when that cannot be done.
    """
    changed: dict[str, Spec] = {}
    for replicated in (False, True):
        part = {name: spec for name, spec in layers.items() if _is_replicated(spec) == replicated}
        changed |= promoted(part)
    return {name: changed[name] for name in layers}


def _is_replicated(spec: Spec) -> bool:
    return isinstance(spec, AttentionSpec) and not spec.dcp_sharded


def promoted(layers: LayerSpecs) -> LayerSpecs:
    """Where full attention stands beside windows or chunks, those layers keep every token too, the window as a note.

    vllm 0.33.0 v1/core/kv_cache_planning.py:744. Raises RefusalError when the layers are of more than one kind even
    so: windows of different sizes, block sizes that differ, states beside attention.
    """
    if not layers or _is_one_kind(tuple(layers.values())):
        return layers
    block_sizes = {spec.block_size for spec in layers.values() if isinstance(spec, FullAttentionSpec)}
    if block_sizes:
        common = block_sizes.pop() if len(block_sizes) == 1 else None
        layers = {name: _promoted(spec, common or spec.block_size) for name, spec in layers.items()}
    if not _is_one_kind(tuple(layers.values())):
        raise RefusalError(
            "the layers cannot be managed as one kind, as --disable-hybrid-kv-cache-manager demands: vLLM refuses to"
            " start; leave the hybrid KV cache manager on",
            where=_SWITCH,
        )
    return layers


def _is_one_kind(specs: Sequence[Spec]) -> bool:
    return merge_into_one(specs) is not None or is_uniform_type(specs)


def _promoted(spec: Spec, block_size: int) -> Spec:
    if isinstance(spec, SlidingWindowMLASpec):
        raise RefusalError(
            "vLLM 0.33.0 fails with a TypeError where it makes an MLA window full attention; leave the hybrid KV cache"
            " manager on",
            where=_SWITCH,
        )
    if not isinstance(spec, SlidingWindowSpec | ChunkedLocalAttentionSpec):
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
        state_bytes=spec.state_bytes,
        tokens_per_state=spec.tokens_per_state,
        dcp_sharded=spec.dcp_sharded,
        block_stride_alignment=spec.block_stride_alignment,
        is_draft=spec.is_draft,
        sliding_window=spec.sliding_window if isinstance(spec, SlidingWindowSpec) else None,
        attention_chunk_size=spec.attention_chunk_size if isinstance(spec, ChunkedLocalAttentionSpec) else None,
    )
