"""Circular buffers: one block per request that is written over and over (keys not compressed yet)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from sim.specs.attention import AttentionSpec
from sim.specs.base import Kind, KVCacheSpec


@dataclass(frozen=True)
class CircularBufferSpec(AttentionSpec):
    """A ring of ``block_size`` tokens (vllm 0.33.0 v1/kv_cache_interface.py:968). Nothing of it is shared."""

    kind: ClassVar[Kind] = "circular_buffer"

    @property
    def prefix_cacheable(self) -> bool:
        """Whether the group takes part in prefix caching: no."""
        return False

    def max_admission_blocks(
        self, max_in_flight_tokens: int, max_model_len: int, *, dcp_world_size: int = 1, max_encoder_tokens: int = 0
    ) -> int:
        """The one block.

        >>> CircularBufferSpec(8, 1, 128, "bfloat16").max_admission_blocks(16384, 131072)
        1
        """
        del max_in_flight_tokens, max_model_len, dcp_world_size, max_encoder_tokens
        return 1

    def table_blocks(self, num_tokens: int, *, dcp_world_size: int = 1, max_encoder_tokens: int = 0) -> int:
        """The one block."""
        del num_tokens, dcp_world_size, max_encoder_tokens
        return 1

    def is_uniform_with(self, specs: Sequence[KVCacheSpec]) -> bool:
        """Whether all are rings."""
        return all(isinstance(spec, CircularBufferSpec) for spec in specs)
