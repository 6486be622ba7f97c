"""The map from keys to blocks: duplicates answer oldest first, and a removal leaves the rest of its chain found."""

from __future__ import annotations

import numpy as np
import pytest

from sim.core import prefix_cache
from sim.core.make_state import make_cache, make_pool
from sim.core.prefix_cache import insert, lookup, remove
from sim.core.state import Cache, Pool

PLACES = 16


def made() -> tuple[Pool, Cache]:
    """Room for six blocks in a map of sixteen places, so that keys 7, 23 and 39 want one place."""
    pool, _ = make_pool(7)
    return pool, make_cache(pool, PLACES)


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
    assert not cache.first.any()


def test_a_block_that_comes_back_is_the_youngest() -> None:
    pool, cache = made()
    insert(pool, cache, key(5), 1)
    insert(pool, cache, key(5), 2)
    remove(pool, cache, 1)
    insert(pool, cache, key(5), 1)
    assert lookup(cache, key(5)) == 2


def _place_of(cache: Cache, low_bits: int) -> int:
    return int(prefix_cache._place(cache, key(low_bits)))


def chain(cache: Cache, place: int) -> list[int]:
    """The blocks kept at a place, in the order a look-up comes by."""
    found = [int(cache.first[place])]
    while found[-1]:
        found.append(int(cache.following[found[-1]]))
    return found[:-1]


def test_keys_that_want_one_place_form_a_chain() -> None:
    pool, cache = made()
    for block, value in enumerate((7, 23, 39, 8), 1):
        insert(pool, cache, key(value), block)
    assert (chain(cache, 7), chain(cache, 8)) == ([3, 2, 1], [4])
    assert [int(lookup(cache, key(value))) for value in (7, 23, 39, 55, 8)] == [1, 2, 3, -1, 4]


def test_the_keys_of_a_text_lie_side_by_side() -> None:
    cache = make_cache(make_pool(7)[0], 64)
    assert [_place_of(cache, 16 * block + 1) for block in range(4)] == [4, 5, 6, 7]
    assert sorted(_place_of(cache, low) for low in range(64)) == list(range(64))


@pytest.mark.parametrize(("gone", "left"), [(1, [3, 2]), (2, [3, 1]), (3, [2, 1])])
def test_a_removal_closes_the_chain(gone: int, left: list[int]) -> None:
    pool, cache = made()
    for block, value in enumerate((7, 23, 39), 1):
        insert(pool, cache, key(value), block)
    remove(pool, cache, gone)
    assert chain(cache, 7) == left
    assert [int(lookup(cache, key(value))) for value in (7, 23, 39)] == [-1 if b == gone else b for b in (1, 2, 3)]


def test_the_next_oldest_takes_the_place_in_the_chain() -> None:
    pool, cache = made()
    for block, value in enumerate((7, 23, 23, 39), 1):
        insert(pool, cache, key(value), block)
    assert chain(cache, 7) == [4, 2, 1]
    remove(pool, cache, 2)
    assert chain(cache, 7) == [4, 3, 1]
    remove(pool, cache, 3)
    assert chain(cache, 7) == [4, 1]
