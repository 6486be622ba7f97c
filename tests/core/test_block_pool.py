"""The pool: which block is taken next is behaviour, so block ids and the order of the free queue are written out."""

from __future__ import annotations

import numpy as np

from sim.core.block_pool import free_queue, release, take, touch
from sim.core.hashing import NO_KEY
from sim.core.make_state import make_pool
from sim.core.prefix_cache import insert, lookup
from sim.core.state import EVICTED_BLOCKS, FREE_BLOCKS, REF, Cache, Pool

A, B = np.uint64(11), np.uint64(12)


def take_many(pool: Pool, cache: Cache, count: int) -> list[int]:
    """The next ``count`` blocks."""
    return [int(take(pool, cache, 0)) for _ in range(count)]


def release_all(pool: Pool, blocks: list[int]) -> None:
    """Free blocks in one go."""
    front = pool.links.shape[0] - 1
    for block in blocks:
        front = release(pool, block, front)


def test_a_new_pool_hands_out_blocks_in_order_and_never_the_null_block() -> None:
    pool, cache = make_pool(5)
    assert free_queue(pool) == [1, 2, 3, 4]
    assert take_many(pool, cache, 4) == [1, 2, 3, 4]
    assert free_queue(pool) == []
    assert int(pool.counters[FREE_BLOCKS]) == 0


def test_blocks_without_a_key_are_used_again_first_in_the_order_they_are_freed() -> None:
    pool, cache = make_pool(8)
    take_many(pool, cache, 5)
    release_all(pool, [5, 4, 3])
    assert free_queue(pool) == [5, 4, 3, 6, 7]
    release_all(pool, [2, 1])
    assert free_queue(pool) == [2, 1, 5, 4, 3, 6, 7]


def test_blocks_with_a_key_go_to_the_back() -> None:
    pool, cache = make_pool(6)
    take_many(pool, cache, 3)
    insert(pool, cache, A, 1)
    insert(pool, cache, B, 3)
    release_all(pool, [3, 2, 1])
    assert free_queue(pool) == [2, 4, 5, 3, 1]


def test_a_key_is_lost_when_its_block_is_taken_for_something_else() -> None:
    pool, cache = make_pool(3)
    take_many(pool, cache, 2)
    insert(pool, cache, A, 1)
    release_all(pool, [2, 1])
    assert (take_many(pool, cache, 1), lookup(cache, A), int(pool.counters[EVICTED_BLOCKS])) == ([2], 1, 0)
    assert (take_many(pool, cache, 1), lookup(cache, A), int(pool.counters[EVICTED_BLOCKS])) == ([1], -1, 1)
    assert pool.key[1] == NO_KEY


def test_a_touched_block_leaves_the_queue_from_the_middle_and_counts_its_users() -> None:
    pool, cache = make_pool(5)
    take_many(pool, cache, 4)
    insert(pool, cache, A, 2)
    insert(pool, cache, B, 3)
    release_all(pool, [4, 3, 2, 1])
    assert free_queue(pool) == [4, 1, 3, 2]
    touch(pool, 3)
    assert free_queue(pool) == [4, 1, 2]
    touch(pool, 3)
    assert pool.links[3, REF] == 2
    release_all(pool, [3])
    assert free_queue(pool) == [4, 1, 2]
    release_all(pool, [3])
    assert free_queue(pool) == [4, 1, 2, 3]


def test_the_null_block_is_never_freed() -> None:
    pool, cache = make_pool(3)
    take_many(pool, cache, 2)
    release_all(pool, [0, 2, 0, 1])
    assert free_queue(pool) == [2, 1]
    assert pool.links[0, REF] == 0


def test_a_pool_may_hold_nothing_but_the_null_block() -> None:
    pool, _ = make_pool(1)
    assert free_queue(pool) == []
    assert int(pool.counters[FREE_BLOCKS]) == 0
