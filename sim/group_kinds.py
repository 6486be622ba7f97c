"""What the core wants to know of a KV cache group: its kind, its window, where chunks of a prompt end for states."""

from __future__ import annotations

from collections.abc import Sequence

from sim.core.state import (
    CHUNKED_LOCAL,
    CIRCULAR,
    CROSS,
    FULL,
    MAMBA_ALIGN,
    MAMBA_NONE,
    REPLAY,
    RSWA,
    SLIDING_WINDOW,
)
from sim.planning import KVCacheGroup, KVCachePlan
from sim.specs import ChunkedLocalAttentionSpec, MambaSpec, RSWASpec, SlidingWindowSpec, Spec

_KINDS = {
    "full_attention": FULL,
    "sink_full_attention": FULL,
    "mla_attention": FULL,
    "hidden_state": FULL,
    "sliding_window": SLIDING_WINDOW,
    "sliding_window_mla": SLIDING_WINDOW,
    "chunked_local_attention": CHUNKED_LOCAL,
    "circular_buffer": CIRCULAR,
    "rswa": RSWA,
    "cross_attention": CROSS,
}
"""How the core manages a kind of group. MLA, sinks and hidden states differ from full attention in bytes alone."""


def kind_of(spec: Spec) -> int:
    """How the core manages a group of this spec."""
    if isinstance(spec, MambaSpec):
        return MAMBA_ALIGN if spec.mamba_cache_mode == "align" else MAMBA_NONE
    if spec.prefix_replay_tokens:
        return REPLAY
    return _KINDS[spec.kind]


def window_of(group: KVCacheGroup) -> int:
    """Tokens of a group's window or chunk; 0 for full attention, whatever window its layers compute with."""
    if isinstance(group.spec, ChunkedLocalAttentionSpec):
        return group.spec.attention_chunk_size
    if isinstance(group.spec, RSWASpec):
        return group.spec.rswa_window
    return int(group.window or 0)


def extra_retained(group: KVCacheGroup) -> int:
    """Tokens below a window that several draft modules may read again."""
    return group.spec.extra_retained_tokens if isinstance(group.spec, SlidingWindowSpec) else 0


def checkpoint_alignment(spec: Spec) -> int:
    """Tokens between the states a kernel can export from inside a chunk; 0 where it exports none."""
    if isinstance(spec, MambaSpec) and spec.num_prefill_checkpoint_blocks:
        return spec.prefill_checkpoint_alignment or 0
    return 0


def split_block_size(plan: KVCachePlan) -> int:
    """Tokens prefill chunks are cut to where states are kept: the smallest cacheable block; 0 without such states."""
    if not any(kind_of(group.spec) == MAMBA_ALIGN for group in plan.groups):
        return 0
    return min(group.block_size for group in plan.groups if group.spec.prefix_cacheable)


def split_alignment(specs: Sequence[Spec]) -> int:
    """Tokens between the states that final chunks are cut for: the first group's, where all groups export states.

    vllm 0.33.0 v1/core/sched/scheduler.py:437-449.
    """
    states = [spec for spec in specs if isinstance(spec, MambaSpec)]
    if not states or not all(spec.num_prefill_checkpoint_blocks for spec in states):
        return 0
    return states[0].prefill_checkpoint_alignment or 0
