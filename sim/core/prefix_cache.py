"""Cached blocks by key: (content of the prefix, KV cache group) -> blocks, the oldest first.

Several blocks may carry one key: vLLM does not de-duplicate. A look-up gives the one that has carried it longest; the
others wait behind it in a ring (vllm 0.33.0 v1/core/block_pool.py:36, BlockHashToBlockMap).

The map has a place for each value of a key's low bits, those of keys 16 tokens apart side by side, and at each place a
chain through the blocks whose keys belong there, null block at its end. There are at least four places to a block: most
chains are empty or one block long, so that a processor guesses right where they end.

    a place   -> block 9 (key ..5) -> block 2 (key ..5') -> 0
                 9 <-> 4 <-> 9: the ring of blocks with one key; only its oldest is in the chain
"""

from __future__ import annotations

import numpy as np

from sim.core._jit import i64, inlined
from sim.core.hashing import NO_KEY
from sim.core.state import DUP_NEXT, DUP_PREV, NULL_BLOCK, Cache, Pool

_FOUR, _FIFTEEN = np.uint64(4), np.uint64(15)


@inlined
def _place(cache: Cache, key: np.uint64) -> np.uint64:
    """The place of a key: its low bits, turned round by four, so that sixteen keys one token apart have places too.

    of 64 places   key 0 -> 0, 16 -> 1, 32 -> 2, 48 -> 3      key 1 -> 4, 17 -> 5, ...

    Unsigned: a signed index costs a test for one that counts from the end.
    """
    low = key & np.uint64(cache.first.size - 1)
    return (low >> _FOUR) + (low & _FIFTEEN) * np.uint64(cache.first.size >> 4)


@inlined
def lookup(cache: Cache, key: np.uint64) -> int:
    """The block that has carried ``key`` longest, or -1."""
    block = i64(cache.first[_place(cache, key)])
    while block != NULL_BLOCK:
        if cache.key[block] == key:
            return block
        block = i64(cache.following[block])
    return -1


@inlined
def insert(pool: Pool, cache: Cache, key: np.uint64, block: int) -> None:
    """Let ``block``, which has no key, carry ``key``."""
    links = pool.links
    oldest = lookup(cache, key)
    pool.key[block] = key
    if oldest < 0:
        place = _place(cache, key)
        cache.following[block] = cache.first[place]
        cache.first[place] = block
        links[block, DUP_NEXT] = block
        links[block, DUP_PREV] = block
        return
    last = links[oldest, DUP_PREV]
    links[last, DUP_NEXT] = block
    links[block, DUP_PREV] = last
    links[block, DUP_NEXT] = oldest
    links[oldest, DUP_PREV] = block


@inlined
def remove(pool: Pool, cache: Cache, block: int) -> None:
    """Take the key off ``block``; the next oldest block with that key, if any, answers look-ups from now on."""
    links = pool.links
    place = _place(cache, pool.key[block])
    pool.key[block] = NO_KEY
    heir = links[block, DUP_NEXT]
    if heir == block:
        _replace_in_chain(cache, place, block, i64(cache.following[block]))
        return
    before = links[block, DUP_PREV]
    links[before, DUP_NEXT] = heir
    links[heir, DUP_PREV] = before
    if _replace_in_chain(cache, place, block, i64(heir)):
        cache.following[heir] = cache.following[block]


@inlined
def _replace_in_chain(cache: Cache, place: np.uint64, block: int, by: int) -> bool:
    """Let what leads to ``block`` lead to ``by``; False when the chain of the place does not hold the block."""
    at = i64(cache.first[place])
    if at == block:
        cache.first[place] = by
        return True
    while at != NULL_BLOCK:
        if cache.following[at] == block:
            cache.following[at] = by
            return True
        at = i64(cache.following[at])
    return False
