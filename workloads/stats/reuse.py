"""How large a cache the reuse of a trace needs: working sets, and the hits of an LRU cache of every size.

Prompts are cut into blocks; block j of a prompt is named by its whole prefix, so equal names are equal prefixes.
Accesses go in order of arrival, each prompt's blocks from its start. A block's reuse distance is the number of other
blocks touched since its last use: an LRU cache hits it when it holds more than that.
"""

from __future__ import annotations

import numpy as np

from workloads.batch import RequestBatch, ranges
from workloads.content import I64, SESSION, U64, named_pair
from workloads.stats.prefixes import paths, prompts_of

ACCESSES = 1 << 20
"""Blocks looked at, at most, for reuse distances; longer traces are cut into larger blocks."""


def block_size_for(tokens: int, least: int) -> int:
    """``least``, doubled until a trace of so many prompt tokens has at most `ACCESSES` blocks.

    >>> block_size_for(10_000, 16), block_size_for(144_793_823, 16)
    (16, 256)
    """
    size = least
    while tokens // size > ACCESSES:
        size *= 2
    return size


def block_names(batch: RequestBatch, size: int, *, partial: bool = False) -> tuple[I64, U64]:
    """For each full block of each prompt, in order, its request and its name; with ``partial`` also its last part."""
    spans = prompts_of(paths(batch))
    stop = spans.start + spans.tokens
    first, last = spans.start // size + 1, stop // size
    counts = np.maximum(last - first + 1, 0)
    at = np.repeat(np.arange(len(counts)), counts)
    boundary = ranges(first, counts) * size
    owner, names = spans.owner[at], named_pair(spans.node[at], boundary - spans.start[at], SESSION)
    if not partial:
        return owner, names
    cut = np.flatnonzero((np.diff(spans.owner, append=-1) != 0) & (stop % size > 0))
    ends = named_pair(spans.node[cut], -1 - spans.tokens[cut], SESSION)
    owner = np.concatenate([owner, spans.owner[cut]])
    order = np.argsort(owner, kind="stable")
    return owner[order], np.concatenate([names, ends])[order]


def previous_use(names: U64) -> I64:
    """For each access the place of the one before to the same name; -1 for the first.

    >>> previous_use(np.array([5, 6, 5, 5], dtype=np.uint64)).tolist()
    [-1, -1, 0, 2]
    """
    order = np.argsort(names, kind="stable")
    same = names[order][1:] == names[order][:-1]
    previous = np.full(len(names), -1, dtype=np.int64)
    previous[order[1:][same]] = order[:-1][same]
    return previous


def reuse_distances(previous: I64) -> I64:
    """For each access to a name used before, in order, how many other names were used in between.

    Between ``p`` and ``i`` lie as many names as accesses j whose own last use is not after ``p``; counted for all j
    before ``i`` that is a number of smaller values to the left, which a merge sort tells.

    >>> reuse_distances(previous_use(np.array([1, 2, 3, 2, 1], dtype=np.uint64))).tolist()
    [1, 2]
    """
    used = np.flatnonzero(previous >= 0)
    return smaller_before(previous)[used] - (previous[used] + 1)


def smaller_before(values: I64) -> I64:
    """For each value how many before it are at most as large, by a merge sort from the bottom up.

    >>> smaller_before(np.array([3, 1, 2, 2])).tolist()
    [0, 0, 1, 2]
    """
    n = len(values)
    counts = np.zeros(n, dtype=np.int64)
    ranks = np.empty(n, dtype=np.int64)
    ranks[np.argsort(values, kind="stable")] = np.arange(n)  # equal values: the earlier one counts as smaller
    width = 1
    while width < n:
        pair = np.arange(n) // (2 * width)
        right = (np.arange(n) // width) % 2 == 1
        left_keys = np.sort(pair[~right] * n + ranks[~right])
        keys = pair[right] * n + ranks[right]
        starts = np.searchsorted(left_keys, pair[right] * n)
        counts[right] += np.searchsorted(left_keys, keys) - starts
        width *= 2
    return counts


def curve(distances: I64, accesses: int, size: int) -> list[tuple[int, float]]:
    """(cache size in tokens, share of block accesses an LRU cache of it hits), sizes doubling up to what is needed.

    >>> curve(np.array([0, 1, 5]), 10, 16)
    [(16, 0.1), (32, 0.2), (64, 0.2), (128, 0.3)]
    """
    if not len(distances):
        return []
    ordered = np.sort(distances)
    points = []
    blocks = 1
    while True:
        hits = int(np.searchsorted(ordered, blocks, side="left"))
        points.append((blocks * size, hits / accesses))
        if hits == len(ordered):
            return points
        blocks *= 2


def working_sets(owner: I64, names: U64, arrival_ns: I64, size: int, windows_s: tuple[int, ...]) -> dict[int, float]:
    """Mean number of distinct tokens touched per window of so many seconds, over the windows that touch any."""
    sizes = {}
    for window in windows_s:
        slot = arrival_ns[owner] // (window * 10**9)
        # Pairs of window and name are distinct where either changes in sorted order.
        order = np.lexsort((names, slot))
        fresh = (np.diff(slot[order]) != 0) | (names[order][1:] != names[order][:-1])
        used = len(np.unique(slot))
        sizes[window] = float((1 + int(fresh.sum())) * size / used) if used else 0.0
    return sizes
