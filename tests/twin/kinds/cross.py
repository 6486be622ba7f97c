"""Cross attention."""

from __future__ import annotations

import math

from tests.twin.kinds.full import FullAttention
from tests.twin.request import Request


class CrossAttention(FullAttention):
    """Holds what the encoder made of a request's input, from its admission to its end, for it alone.

    vllm 0.33.0 v1/core/single_type_kv_cache_manager.py:2138, v1/core/kv_cache_coordinator.py:240.
    """

    in_prefix_cache = False

    def needed(self, request: Request, begun: list[int], start: int, end: int, *, capped: bool = False) -> int:
        """Room for the encoder's tokens, once."""
        del begun, start, end, capped
        return 0 if request in self.tables else math.ceil(request.ask.encoder_tokens / self.size)

    def begin(self, request: Request, begun: list[int], hit: int) -> None:
        """Nothing of a hit is in it."""
        del begun, hit
        self.tables[request] = []

    def extend(self, request: Request, end: int) -> None:
        """Take the blocks of the encoder's tokens."""
        del end
        if not self.tables[request]:
            self.tables[request] += self.pool.take(math.ceil(request.ask.encoder_tokens / self.size))

    def cache(self, request: Request, tokens: int) -> None:
        """It takes no part in prefix caching."""
