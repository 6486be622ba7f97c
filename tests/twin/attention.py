"""What kinds of attention ask of the cache, said as plainly as it goes: by looking at every candidate."""

from __future__ import annotations

import math
from collections.abc import Callable

from tests.twin.request import Request
from tests.twin.settings import Group, Settings

IsCached = Callable[[int], bool]
"""Whether the block with this index of a request's table is cached, in every group of a spec."""


class FullAttention:
    """Reads every token before it (vllm 0.33.0 v1/core/single_type_kv_cache_manager.py:739)."""

    def __init__(self, group: Group, settings: Settings) -> None:
        self.size = group.block_size
        self.settings = settings

    def skipped_blocks(self, computed: int) -> int:
        """Blocks that are never read again once ``computed`` tokens are computed."""
        del computed
        return 0

    def longest_hit(self, limit: int, is_cached: IsCached) -> int:
        """Tokens of the longest cached prefix of at most ``limit`` tokens."""
        blocks = 0
        while (blocks + 1) * self.size <= limit and is_cached(blocks):
            blocks += 1
        return blocks * self.size // self.settings.scheduler_block_size * self.settings.scheduler_block_size

    def is_worth_a_key(self, index: int, request: Request) -> bool:
        """Whether a later hit can use a block."""
        del index, request
        return True


class SlidingWindow(FullAttention):
    """Reads the last ``window`` tokens, itself included (vllm 0.33.0 v1/core/single_type_kv_cache_manager.py:946)."""

    def __init__(self, group: Group, settings: Settings) -> None:
        super().__init__(group, settings)
        self.window = group.window
        self.tail = math.ceil((self.window - 1) / self.size)

    def skipped_blocks(self, computed: int) -> int:
        """Whole blocks among the tokens that the next one, number ``computed``, does not see."""
        unseen = [token for token in range(computed) if token + self.window <= computed]
        return len(unseen) // self.size

    def longest_hit(self, limit: int, is_cached: IsCached) -> int:
        """Tokens of the longest prefix whose last blocks, as many as the window looks back, are all cached."""
        for blocks in range(limit // self.size, 0, -1):
            looked_at = range(max(0, blocks - max(self.tail, 1)), blocks)
            if blocks * self.size % self.settings.scheduler_block_size == 0 and all(map(is_cached, looked_at)):
                return blocks * self.size
        return 0

    def is_worth_a_key(self, index: int, request: Request) -> bool:
        """Whether a block is in the tail of a prefix that the retention interval keeps."""
        return any(end - self.tail <= index < end for end in self._kept_ends(index, request))

    def _kept_ends(self, index: int, request: Request) -> list[int]:
        """Ends, in blocks, of the prefixes that are kept, as far as they matter to one block."""
        interval, unit = self.settings.retention_interval, self.settings.scheduler_block_size
        ends = []
        if interval != 0:
            segment = (unit if interval is None else interval) // self.size
            ends.append((index // segment + 1) * segment)
        if interval is not None:
            ends += [tokens // unit * unit // self.size for tokens in (request.ask.prompt_tokens - 1, request.junction)]
        return ends


def attention_of(group: Group, settings: Settings) -> FullAttention:
    """The rules of a group."""
    return SlidingWindow(group, settings) if group.window else FullAttention(group, settings)
