"""What a step is made of, as far as its duration goes: tokens that were there, new tokens, and their blocks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from gpu_check.kernels.batch import first_key

DECODE, PREFILL, MIXED = "decode only", "prefill only", "mixed"
CLASSES = (DECODE, PREFILL, MIXED)
Tables = tuple[tuple[int, ...], ...]


@dataclass(frozen=True, slots=True)
class Composition:
    """The requests of one step in order: ``starts`` tokens each were computed before, ``news`` are computed now.

    ``tables`` holds block ids per KV cache group and request, as the simulator gave them out; None where a step is made
    up, whose blocks then lie anywhere. ``step`` is the simulator's number of it, 0 of a step that is made up.
    """

    starts: tuple[int, ...]
    news: tuple[int, ...]
    tables: tuple[Tables, ...] | None = None
    step: int = 0

    @property
    def tokens(self) -> int:
        """New tokens of all requests."""
        return sum(self.news)

    @property
    def ends(self) -> tuple[int, ...]:
        """Tokens in the cache after the step, per request."""
        return tuple(start + new for start, new in zip(self.starts, self.news, strict=True))

    @property
    def kind(self) -> str:
        """Which of the three classes of steps it is; one new token counts as decoding, also a prompt's last.

        >>> [Composition(s, n).kind for s, n in (((8, 9), (1, 1)), ((0,), (64,)), ((8, 0), (1, 64)))]
        ['decode only', 'prefill only', 'mixed']
        """
        if max(self.news) == 1:
            return DECODE
        return PREFILL if min(self.news) > 1 else MIXED

    @property
    def pairs(self) -> int:
        """Query-key pairs of full attention."""
        return sum(new * start + new * (new + 1) // 2 for start, new in zip(self.starts, self.news, strict=True))


def made_up(decodes: int, context: int, prefill: int) -> Composition:
    """``decodes`` requests with ``context`` tokens each, and a prompt's chunk of ``prefill`` tokens.

    Beside decoding requests the chunk is the prompt's first; alone it follows ``context`` tokens.
    """
    starts, news = [context] * decodes, [1] * decodes
    if prefill:
        starts.append(0 if decodes else context)
        news.append(prefill)
    return Composition(tuple(starts), tuple(news))


def visible_blocks(start: int, new: int, window: int, chunk: int, block_size: int) -> range:
    """Indices into a request's table of the blocks that its new tokens see or are written to.

        blocks of 4, window 4, start 9, 2 new:   0 1 2 3 | 4 5 [6 7 | 8 9 10] 11

    >>> visible_blocks(9, 2, 4, 0, 4), visible_blocks(9, 2, 0, 0, 4)
    (range(1, 3), range(0, 3))
    """
    return range(first_key(start, window, chunk) // block_size, -(-(start + new) // block_size))


def evenly(items: Sequence[int], count: int) -> list[int]:
    """At most ``count`` of the items, evenly spread, the first and the last among them.

    >>> evenly([0, 1, 2, 3, 4, 5, 6], 3), evenly([4], 3)
    ([0, 3, 6], [4])
    """
    if len(items) <= count:
        return list(items)
    return [items[round(i * (len(items) - 1) / max(count - 1, 1))] for i in range(count)]
