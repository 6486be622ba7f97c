"""Chunked local attention."""

from __future__ import annotations

from tests.twin.kinds.full import FullAttention, Hit, IsCached
from tests.twin.request import Request


class ChunkedLocal(FullAttention):
    """Reads its own chunk of the text (vllm 0.33.0 v1/core/single_type_kv_cache_manager.py:1275)."""

    shorter_is_a_hit_too = False

    def _chunk_start(self, token: int) -> int:
        return max(start for start in range(0, token + 1, self.group.window))

    def skipped_blocks(self, computed: int) -> int:
        """Whole blocks before the chunk of the next token."""
        return self._chunk_start(computed) // self.size

    def longest_hit(self, limit: int, is_cached: IsCached, *, drop: bool = False) -> Hit:
        """Everything before the chunk of token ``limit`` unseen, then the run of cached blocks."""
        assert not drop
        ends = [0] * (self._chunk_start(limit) // self.size)
        while len(ends) + 1 <= limit // self.size and is_cached((len(ends) + 1) * self.size):
            ends.append((len(ends) + 1) * self.size)
        return len(ends) * self.size, ends

    def cache_tail(self, request: Request, tokens: int) -> None:
        """Its blocks are as large as a unit wherever hits may end inside others' blocks."""
