"""Sliding window attention."""

from __future__ import annotations

import math

from tests.twin.kinds.full import FullAttention, Hit, IsCached
from tests.twin.pool import BlockPool
from tests.twin.request import Request
from tests.twin.settings import Settings


class SlidingWindow(FullAttention):
    """Reads the last ``window`` tokens, itself included (vllm 0.33.0 v1/core/single_type_kv_cache_manager.py:946)."""

    shorter_is_a_hit_too = False

    def __init__(self, number: int, settings: Settings, pool: BlockPool) -> None:
        super().__init__(number, settings, pool)
        self.window = self.group.window
        self.tail = math.ceil((self.window - 1) / self.size)

    def skipped_blocks(self, computed: int) -> int:
        """Whole blocks among the tokens that the next one, number ``computed``, does not see."""
        unseen = [token for token in range(computed) if token + self.window <= computed]
        return len(unseen) // self.size

    def longest_hit(self, limit: int, is_cached: IsCached) -> Hit:
        """The longest prefix whose last blocks, as many as the window looks back, are all cached."""
        for blocks in range(limit // self.size, 0, -1):
            first = max(0, blocks - max(self.tail, 1))
            ends = [(i + 1) * self.size for i in range(first, blocks)]
            if blocks * self.size % self.settings.hit_alignment == 0 and all(map(is_cached, ends)):
                return blocks * self.size, [0] * first + ends
        return 0, []

    def is_worth_a_key(self, index: int, request: Request) -> bool:
        """Whether a block is in the tail of a prefix that the retention interval keeps."""
        return any(end - self.tail <= index < end for end in self._kept_ends(index, request))

    def _kept_ends(self, index: int, request: Request) -> list[int]:
        """Ends, in blocks, of the prefixes that are kept, as far as they matter to one block."""
        interval, unit = self.settings.retention_interval, self.settings.hit_alignment
        ends = []
        if interval != 0:
            segment = (unit if interval is None else interval) // self.size
            ends.append((index // segment + 1) * segment)
        if interval is not None:
            ends += [tokens // unit * unit // self.size for tokens in (request.ask.prompt_tokens - 1, request.junction)]
        return ends

    def cache_tail(self, request: Request, tokens: int) -> None:
        """Its blocks are as large as a unit wherever hits may end inside others' blocks."""
