"""The pool of blocks: a free queue, reference counts and the null block.

Life cycle of a block: *free without key* -> taken (reference 1) -> perhaps cached (gets a key) -> shared (more
references) -> reference 0: back in the free queue, at its **front** when it has no key (reused next, LIFO), at its
**back** when it is cached (evicted in LRU order). A cached free block is lost to the cache only when it is taken for
something else. vllm 0.33.0 v1/core/block_pool.py:646 (get_new_blocks), :722 (touch), :745 (free_blocks).

The queue is a ring through row ``sentinel`` = num_blocks of ``links``.
"""

from __future__ import annotations

from sim.core._jit import i64, inlined
from sim.core.hashing import NO_KEY
from sim.core.kv_events import forget
from sim.core.second_keys import NO_ROW, drop_second_keys
from sim.core.state import (
    EVICTED_BLOCKS,
    FREE_BLOCKS,
    HELD_CACHED,
    HELD_LIVE,
    NEXT,
    NULL_BLOCK,
    PREV,
    REF,
    SECOND_KEY,
    Cache,
    Int32s,
    Pool,
)


@inlined
def _unlink(pool: Pool, block: int) -> None:
    _join(pool, i64(pool.links[block, PREV]), i64(pool.links[block, NEXT]))
    pool.counters[FREE_BLOCKS] -= 1


@inlined
def _join(pool: Pool, before: int, after: int) -> None:
    """Let one block of the free queue, or the sentinel, follow another."""
    pool.links[before, NEXT] = after
    pool.links[after, PREV] = before


def free_queue(pool: Pool) -> list[int]:
    """Ids of the free blocks, the next one to be taken first; of a ring that does not close, as many as blocks."""
    sentinel = pool.links.shape[0] - 1
    order: list[int] = []
    block = int(pool.links[sentinel, NEXT])
    while block != sentinel and len(order) < sentinel:
        order.append(block)
        block = int(pool.links[block, NEXT])
    return order


@inlined
def take(pool: Pool, cache: Cache, group: int) -> int:
    """Take the block at the front of the free queue for a group; a key it still carries is evicted from the cache."""
    block = i64(pool.links[pool.links.shape[0] - 1, NEXT])
    _unlink(pool, block)
    _claim(pool, cache, block, group)
    return block


@inlined
def _claim(pool: Pool, cache: Cache, block: int, group: int) -> None:
    """Give a block that was free its first reference, and take the key off it that it may still carry."""
    pool.links[block, REF] = 1
    counts = pool.held.size > 0
    if pool.key[block] != NO_KEY:
        if counts:
            pool.held[pool.group[block], HELD_CACHED] -= 1
        forget(pool, cache, block)
        if pool.links[block, SECOND_KEY] != NO_ROW:
            drop_second_keys(pool, cache, block)
        pool.counters[EVICTED_BLOCKS] += 1
    if counts:
        pool.group[block] = group
        pool.held[group, HELD_LIVE] += 1


@inlined
def touch(pool: Pool, block: int) -> None:
    """Add a reference to a cached block; a free one leaves the free queue, the null block is left alone."""
    if block == NULL_BLOCK:
        return
    if pool.links[block, REF] == 0:
        _unlink(pool, block)
        if pool.held.size > 0:
            pool.held[pool.group[block], HELD_CACHED] -= 1
            pool.held[pool.group[block], HELD_LIVE] += 1
    pool.links[block, REF] += 1


@inlined
def release(pool: Pool, block: int, front: int) -> int:
    """Drop one reference; at zero the block rejoins the free queue.

    ``front``: where the next block without key goes: behind the one freed just before by the same call, so that the
    first one freed is the first one reused. Starts as the sentinel; returns its new value.
    """
    if block == NULL_BLOCK or not _drop_reference(pool, block):
        return front
    keyless = pool.key[block] == NO_KEY
    before = front if keyless else i64(pool.links[pool.links.shape[0] - 1, PREV])
    after = i64(pool.links[before, NEXT])
    _join(pool, before, block)
    _join(pool, block, after)
    pool.counters[FREE_BLOCKS] += 1
    return block if keyless else front


@inlined
def _drop_reference(pool: Pool, block: int) -> bool:
    """Take one reference off a block; whether that was the last."""
    pool.links[block, REF] -= 1
    if pool.links[block, REF] > 0:
        return False
    if pool.held.size > 0:
        pool.held[pool.group[block], HELD_LIVE] -= 1
        pool.held[pool.group[block], HELD_CACHED] += 0 if pool.key[block] == NO_KEY else 1
    return True


@inlined
def take_run(pool: Pool, cache: Cache, entries: Int32s, first: int, last: int, group: int) -> None:
    """Take blocks for the entries ``first`` … ``last - 1`` of a group's table; the queue is closed behind them once.

    queue   -> 3 -> 7 -> 5 -> 9 ...      take two: entries 3, 7; queue -> 5 -> 9 ...
    """
    if last <= first:
        return
    links = pool.links
    sentinel = links.shape[0] - 1
    block = i64(links[sentinel, NEXT])
    for i in range(first, last):
        entries[i] = block
        _claim(pool, cache, block, group)
        block = i64(links[block, NEXT])
    _join(pool, sentinel, block)
    pool.counters[FREE_BLOCKS] -= last - first


@inlined
def release_run(pool: Pool, entries: Int32s, first: int, last: int) -> None:
    """Drop the references of the entries ``first`` … ``last - 1``, the last one first, like :func:`release` of each.

    entries 5 6 7 8, of which 6 and 8 have a key     queue -> 7 -> 5 -> what was free -> 8 -> 6

    What becomes free is chained up on the way, and the two chains are joined to the queue once.
    """
    links, sentinel = pool.links, i64(pool.links.shape[0] - 1)
    behind, front = i64(links[sentinel, NEXT]), sentinel
    back_head, back, freed = sentinel, sentinel, 0
    for i in range(last - 1, first - 1, -1):
        block = i64(entries[i])
        if block == NULL_BLOCK or not _drop_reference(pool, block):
            continue
        freed += 1
        if pool.key[block] == NO_KEY:
            _join(pool, front, block)
            front = block
        elif back == sentinel:
            back_head, back = block, block
        else:
            _join(pool, back, block)
            back = block
    _join(pool, front, behind)
    if back != sentinel:
        _join(pool, i64(links[sentinel, PREV]), back_head)
        _join(pool, back, sentinel)
    pool.counters[FREE_BLOCKS] += freed
