"""Cached blocks by key: (content of the prefix, KV cache group) -> blocks, the oldest first.

Several blocks may carry one key: vLLM does not de-duplicate. A look-up gives the one that has carried it longest; the
others wait behind it in a ring (vllm 0.33.0 v1/core/block_pool.py:36, BlockHashToBlockMap). The map is open addressing
with linear probing; a removal shifts later entries back, so there are no tombstones and no rehashing.
"""

from __future__ import annotations

import numpy as np

from sim.core._jit import compiled, i64
from sim.core.hashing import NO_KEY
from sim.core.state import DUP_NEXT, DUP_PREV, Cache, Pool


@compiled
def _home(cache: Cache, key: np.uint64) -> int:
    return i64(key & np.uint64(cache.key.size - 1))


@compiled
def _place(cache: Cache, key: np.uint64) -> int:
    """The place that holds ``key``, or the empty place where it would go."""
    mask = cache.key.size - 1
    place = _home(cache, key)
    while cache.key[place] != key and cache.key[place] != NO_KEY:
        place = (place + 1) & mask
    return place


@compiled
def lookup(cache: Cache, key: np.uint64) -> int:
    """The block that has carried ``key`` longest, or -1."""
    place = _place(cache, key)
    return i64(cache.block[place]) if cache.key[place] == key else -1


@compiled
def insert(pool: Pool, cache: Cache, key: np.uint64, block: int) -> None:
    """Let ``block``, which has no key, carry ``key``."""
    place = _place(cache, key)
    pool.key[block] = key
    links = pool.links
    if cache.key[place] == NO_KEY:
        cache.key[place] = key
        cache.block[place] = block
        links[block, DUP_NEXT] = block
        links[block, DUP_PREV] = block
        return
    first = cache.block[place]
    last = links[first, DUP_PREV]
    links[last, DUP_NEXT] = block
    links[block, DUP_PREV] = last
    links[block, DUP_NEXT] = first
    links[first, DUP_PREV] = block


@compiled
def remove(pool: Pool, cache: Cache, block: int) -> None:
    """Take the key off ``block``; the next oldest block with that key, if any, answers look-ups from now on."""
    key = pool.key[block]
    pool.key[block] = NO_KEY
    links = pool.links
    place = _place(cache, key)
    following = links[block, DUP_NEXT]
    if following == block:
        _close_gap(cache, place)
        return
    before = links[block, DUP_PREV]
    links[before, DUP_NEXT] = following
    links[following, DUP_PREV] = before
    if cache.block[place] == block:
        cache.block[place] = following


@compiled
def _close_gap(cache: Cache, gap: int) -> None:
    """Empty a place and move back every later entry of the run that may no longer be found past the gap."""
    mask = cache.key.size - 1
    place = (gap + 1) & mask
    while cache.key[place] != NO_KEY:
        home = _home(cache, cache.key[place])
        if ((place - home) & mask) >= ((place - gap) & mask):
            cache.key[gap] = cache.key[place]
            cache.block[gap] = cache.block[place]
            gap = place
        place = (place + 1) & mask
    cache.key[gap] = NO_KEY
