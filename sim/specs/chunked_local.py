"""Chunked local attention (Llama 4): a token reads its own chunk of the text, up to itself, and nothing before."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from sim.specs.attention import AttentionSpec
from sim.specs.base import Kind, KVCacheSpec
from sim.units import cdiv


@dataclass(frozen=True)
class ChunkedLocalAttentionSpec(AttentionSpec):
    """A layer that reads within chunks of ``attention_chunk_size`` tokens.

    Rules: vllm 0.33.0 v1/kv_cache_interface.py:861 and v1/core/single_type_kv_cache_manager.py:1381.
    """

    attention_chunk_size: int = field(kw_only=True)

    kind: ClassVar[Kind] = "chunked_local_attention"

    def max_admission_blocks(
        self, max_in_flight_tokens: int, max_model_len: int, *, dcp_world_size: int = 1, max_encoder_tokens: int = 0
    ) -> int:
        """Most blocks one request of ``max_model_len`` tokens is charged for: one chunk and all tokens in flight.

        >>> spec = ChunkedLocalAttentionSpec(16, 8, 128, "bfloat16", attention_chunk_size=8192)
        >>> spec.max_admission_blocks(16384, 1 << 20), spec.max_admission_blocks(16384, 100)
        (1536, 7)
        """
        del dcp_world_size, max_encoder_tokens
        return cdiv(min(self.attention_chunk_size + max_in_flight_tokens, max_model_len), self.block_size)

    def num_skipped_tokens(self, num_computed_tokens: int) -> int:
        """Tokens before the chunk of the next token.

        With chunks of 4 and 7 tokens computed, token 7 comes next and reads tokens 4, 5, 6 and itself::

            tokens    0 1 2 3 | 4 5 6 | 7
            skipped   x x x x |       |
            chunk             | c c c | c

        >>> spec = ChunkedLocalAttentionSpec(16, 8, 64, "bfloat16", attention_chunk_size=4)
        >>> [spec.num_skipped_tokens(n) for n in (3, 4, 7, 8)]
        [0, 4, 4, 8]
        """
        return num_computed_tokens // self.attention_chunk_size * self.attention_chunk_size

    def is_uniform_with(self, specs: Sequence[KVCacheSpec]) -> bool:
        """Whether all read within chunks of this size."""
        return all(
            isinstance(spec, ChunkedLocalAttentionSpec) and spec.attention_chunk_size == self.attention_chunk_size
            for spec in specs
        )
