"""KV cache specs: what one layer stores, in pages of one block each. One file per kind, with vLLM's names."""

from __future__ import annotations

from collections.abc import Sequence

from sim.specs.attention import AttentionSpec, state_content_bytes
from sim.specs.base import KernelBlocks, Kind, KVCacheSpec, WindowConflictError
from sim.specs.chunked_local import ChunkedLocalAttentionSpec
from sim.specs.circular import CircularBufferSpec
from sim.specs.cross import CrossAttentionSpec
from sim.specs.full import FullAttentionSpec, RSWASpec, SinkFullAttentionSpec
from sim.specs.mamba import MambaCacheMode, MambaSpec
from sim.specs.mla import CacheRole, HiddenStateCacheSpec, MLAAttentionSpec
from sim.specs.sliding_window import SlidingWindowMLASpec, SlidingWindowSpec

__all__ = [
    "AttentionSpec",
    "CacheRole",
    "ChunkedLocalAttentionSpec",
    "CircularBufferSpec",
    "CrossAttentionSpec",
    "FullAttentionSpec",
    "HiddenStateCacheSpec",
    "KVCacheSpec",
    "KernelBlocks",
    "Kind",
    "MLAAttentionSpec",
    "MambaCacheMode",
    "MambaSpec",
    "RSWASpec",
    "SinkFullAttentionSpec",
    "SlidingWindowMLASpec",
    "SlidingWindowSpec",
    "Spec",
    "WindowConflictError",
    "merge_specs",
    "resident_blocks",
    "state_content_bytes",
    "window_of",
]

Spec = KVCacheSpec
"""The KV cache spec of one layer."""


def window_of(spec: Spec) -> int | None:
    """The window in tokens that blocks are freed by; None for other kinds, also when one has a note of a window."""
    return spec.sliding_window if isinstance(spec, SlidingWindowSpec) else None


def resident_blocks(spec: Spec, num_tokens: int, *, dcp_world_size: int = 1, max_encoder_tokens: int = 0) -> int:
    """Blocks a request of ``num_tokens`` computed tokens still needs, once everything before the window is freed.

    Window 32, blocks of 16, 112 tokens: 81 tokens are skipped, so five whole blocks go and two stay::

        tokens  0              16     ...      80          96          112
        blocks  |  0  |  1  |  2  |  3  |  4  |     5     |     6     |
        kept                                   [  81 ... 111 are read  ]

    >>> resident_blocks(SlidingWindowSpec(16, 8, 64, "bfloat16", sliding_window=32), 112)
    2
    >>> resident_blocks(FullAttentionSpec(16, 8, 64, "bfloat16"), 112)
    7
    """
    entries = spec.table_blocks(num_tokens, dcp_world_size=dcp_world_size, max_encoder_tokens=max_encoder_tokens)
    return entries - spec.num_skipped_tokens(num_tokens) // spec.token_span(dcp_world_size)


def merge_specs(specs: Sequence[Spec]) -> Spec | None:
    """The one spec that stands for all of ``specs``, or None when they cannot share a group.

    Which can, the first of them decides by its kind.

    >>> from dataclasses import replace
    >>> plain = FullAttentionSpec(16, 8, 64, "bfloat16")
    >>> merged = merge_specs([plain, replace(plain, sliding_window=128)])
    >>> merged.sliding_window
    128
    """
    try:
        return type(specs[0]).merge(specs)
    except WindowConflictError:
        return None
