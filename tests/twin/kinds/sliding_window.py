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
        kept = self.settings.kept_window(self.group)
        unseen = [token for token in range(computed) if token + kept <= computed]
        return len(unseen) // self.size

    def longest_hit(self, limit: int, is_cached: IsCached, *, drop: bool = False) -> Hit:
        """The longest prefix whose last blocks, as many as the window looks back, are all cached; and one to lose.

        Fewer blocks from the start of a text are cut to the alignment before and after one is lost.
        """
        aligned, need = self.settings.hit_alignment // self.size, max(self.tail + drop, 1)
        for blocks in range(limit // self.size, 0, -1):
            first = max(0, blocks - need)
            ends = [0] * first + [(i + 1) * self.size for i in range(first, blocks)]
            if (blocks - drop) % aligned == 0 and all(map(is_cached, ends[first:])):
                cut = blocks // aligned * aligned if blocks < need else blocks
                hit = max(cut - drop, 0) // aligned * aligned
                return hit * self.size, ends[:hit]
        return 0, []

    def is_worth_a_key(self, index: int, request: Request) -> bool:
        """Whether a block is in the tail of a prefix that the retention interval keeps."""
        shift = int(self.settings.drops(self.number))
        need = self.tail + shift
        if need >= self._segment_blocks() > 0:
            return True
        return any(end - need <= index - shift < end for end in self._kept_ends(index - shift, request))

    def _segment_blocks(self) -> int:
        """Blocks from one kept tail to the next; 0 where none is kept for its own sake."""
        interval = self.settings.retention_interval
        return (self.settings.hit_alignment if interval is None else interval) // self.size

    def _kept_ends(self, index: int, request: Request) -> list[int]:
        """Ends, in blocks, of the prefixes that are kept, as far as they matter to one block."""
        interval, unit = self.settings.retention_interval, self.settings.hit_alignment
        ends = []
        segment = self._segment_blocks()
        if segment and index >= 0:
            ends.append((index // segment + 1) * segment)
        if interval is not None:
            resumed = [*self.settings.replay_boundaries(request.ask.prompt_tokens), *self.junctions(request)]
            ends += [tokens // unit * unit // self.size for tokens in resumed]
        return ends

    def cache_tail(self, request: Request, tokens: int) -> None:
        """Its blocks are as large as a unit wherever hits may end inside others' blocks."""
