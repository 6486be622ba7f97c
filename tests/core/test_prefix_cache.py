"""The map from keys to blocks: duplicates answer oldest first, and a removal leaves no hole in a run."""

from __future__ import annotations

import numpy as np

from sim.core.hashing import NO_KEY
from sim.core.make_state import make_pool
from sim.core.prefix_cache import insert, lookup, remove
from sim.core.state import Cache, Pool

PLACES = 8


def made() -> tuple[Pool, Cache]:
    """Room for six blocks in a table of eight places, so that keys 7, 15 and 23 want the last place."""
    pool, _ = make_pool(7)
    return pool, Cache(np.zeros(PLACES, np.uint64), np.zeros(PLACES, np.int32))


def key(value: int) -> np.uint64:
    return np.uint64(value)


def test_the_oldest_block_with_a_key_answers() -> None:
    pool, cache = made()
    for block in (3, 1, 2):
        insert(pool, cache, key(5), block)
    assert lookup(cache, key(5)) == 3
    remove(pool, cache, 3)
    assert lookup(cache, key(5)) == 1
    remove(pool, cache, 2)
    assert lookup(cache, key(5)) == 1
    remove(pool, cache, 1)
    assert lookup(cache, key(5)) == -1
    assert not (cache.key != NO_KEY).any()


def test_a_block_that_comes_back_is_the_youngest() -> None:
    pool, cache = made()
    insert(pool, cache, key(5), 1)
    insert(pool, cache, key(5), 2)
    remove(pool, cache, 1)
    insert(pool, cache, key(5), 1)
    assert lookup(cache, key(5)) == 2


def test_a_run_wraps_around_the_end_of_the_table() -> None:
    pool, cache = made()
    for block, value in enumerate((7, 15, 23), 1):
        insert(pool, cache, key(value), block)
    assert cache.key.tolist() == [15, 23, 0, 0, 0, 0, 0, 7]
    assert [int(lookup(cache, key(value))) for value in (7, 15, 23, 31)] == [1, 2, 3, -1]


def test_a_removal_moves_later_entries_back() -> None:
    pool, cache = made()
    for block, value in enumerate((7, 15, 8, 1), 1):
        insert(pool, cache, key(value), block)
    assert cache.key.tolist() == [15, 8, 1, 0, 0, 0, 0, 7]
    remove(pool, cache, 1)
    assert cache.key.tolist() == [8, 1, 0, 0, 0, 0, 0, 15]
    assert [int(lookup(cache, key(value))) for value in (7, 15, 8, 1)] == [-1, 2, 3, 4]


def test_an_entry_at_home_stays_where_it_is() -> None:
    pool, cache = made()
    for block, value in enumerate((6, 7, 14), 1):
        insert(pool, cache, key(value), block)
    assert cache.key.tolist() == [14, 0, 0, 0, 0, 0, 6, 7]
    remove(pool, cache, 1)
    assert cache.key.tolist() == [0, 0, 0, 0, 0, 0, 14, 7]
