"""Full attention and its kin that keep every token: with attention sinks, or with a reference window."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace
from typing import ClassVar

from sim.specs.attention import AttentionSpec
from sim.specs.base import Kind, KVCacheSpec, WindowConflictError
from sim.units import cdiv

_LAYOUT = tuple(spec_field.name for spec_field in fields(AttentionSpec) if spec_field.compare)
"""What full-attention specs must agree on to share a group; the rest are notes."""


@dataclass(frozen=True)
class FullAttentionSpec(AttentionSpec):
    """A layer that keeps every token (vllm 0.33.0 v1/kv_cache_interface.py:619).

    ``sliding_window`` and ``attention_chunk_size`` are only notes: a window or chunked layer that the planner treats as
    full attention, because the hybrid manager is off, still computes with its window but stores all tokens.
    """

    sliding_window: int | None = field(default=None, kw_only=True)
    attention_chunk_size: int | None = field(default=None, kw_only=True)

    kind: ClassVar[Kind] = "full_attention"
    fine_grained_hits: ClassVar[bool] = True

    def max_admission_blocks(
        self, max_in_flight_tokens: int, max_model_len: int, *, dcp_world_size: int = 1, max_encoder_tokens: int = 0
    ) -> int:
        """Blocks one request of ``max_model_len`` tokens takes on a rank: all of its share, whatever is in flight.

        >>> FullAttentionSpec(16, 8, 128, "bfloat16").max_admission_blocks(16384, 131072)
        8192
        """
        del max_in_flight_tokens, max_encoder_tokens
        return cdiv(cdiv(max_model_len, dcp_world_size if self.dcp_sharded else 1), self.block_size)

    @classmethod
    def merge(cls, specs: Sequence[KVCacheSpec]) -> KVCacheSpec | None:
        """One full-attention spec for layers of equal pages, notes of windows gathered; None if they differ.

        MLA never merges with the others. Raises WindowConflictError for notes of different windows.

        vllm 0.33.0 v1/kv_cache_interface.py:663.
        """
        members = [spec for spec in specs if isinstance(spec, FullAttentionSpec)]
        if len(members) < len(specs) or any(spec.kind in ("mla_attention", "hidden_state") for spec in members):
            return None
        first = members[0]
        merged = replace(
            first,
            sliding_window=_one_of([spec.sliding_window for spec in members]),
            attention_chunk_size=_one_of([spec.attention_chunk_size for spec in members]),
        )
        if merged.sliding_window is not None and merged.attention_chunk_size is not None:
            return None
        return merged if _same_layout(members) else None

    def is_uniform_with(self, specs: Sequence[KVCacheSpec]) -> bool:
        """Whether all keep every token: full attention, MLA, sinks, whatever their sizes."""
        return all(isinstance(spec, FullAttentionSpec) for spec in specs)


@dataclass(frozen=True)
class SinkFullAttentionSpec(FullAttentionSpec):
    """Full attention that also reads ``sink_len`` tokens of its own blocks, shared by all requests.

    vllm 0.33.0 v1/kv_cache_interface.py:1232.
    """

    sink_len: int | None = field(default=None, kw_only=True)

    kind: ClassVar[Kind] = "sink_full_attention"


@dataclass(frozen=True)
class RSWASpec(FullAttentionSpec):
    """Reference sliding window: the prompt is kept whole, of the output the last ``rswa_window`` tokens.

    What is freed between the two is not known before the request runs, so it is charged as full attention (vllm 0.33.0
    v1/kv_cache_interface.py:816).
    """

    rswa_window: int = field(kw_only=True)

    kind: ClassVar[Kind] = "rswa"

    @classmethod
    def merge(cls, specs: Sequence[KVCacheSpec]) -> KVCacheSpec | None:
        """One spec for layers with the same reference window; None if they differ."""
        windows = {spec.rswa_window for spec in specs if isinstance(spec, RSWASpec)}
        if len(windows) != 1 or not all(isinstance(spec, RSWASpec) for spec in specs):
            return None
        return super().merge(specs)


def _same_layout(specs: Sequence[AttentionSpec]) -> bool:
    return all(getattr(spec, name) == getattr(specs[0], name) for spec in specs for name in _LAYOUT)


def _one_of(notes: Sequence[int | None]) -> int | None:
    sizes = sorted({note for note in notes if note is not None})
    if len(sizes) > 1:
        raise WindowConflictError(sizes)
    return sizes[0] if sizes else None
