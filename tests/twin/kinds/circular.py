"""Circular buffers."""

from __future__ import annotations

from tests.twin.kinds.full import FullAttention
from tests.twin.request import Request


class CircularBuffer(FullAttention):
    """One block, written round and round, nobody else's (vllm 0.33.0 v1/core/single_type_kv_cache_manager.py:1170)."""

    in_prefix_cache = False

    def needed(self, request: Request, begun: list[int], start: int, end: int, *, capped: bool = False) -> int:
        """One block, once."""
        del begun, start, end, capped
        return 0 if request in self.tables else 1

    def begin(self, request: Request, begun: list[int], hit: int) -> None:
        """Nothing of a hit is in it."""
        del begun, hit
        self.tables[request] = []

    def extend(self, request: Request, end: int) -> None:
        """Take the one block."""
        del end
        if not self.tables[request]:
            self.tables[request] += self.pool.take(1)

    def cache(self, request: Request, tokens: int) -> None:
        """It takes no part in prefix caching."""
