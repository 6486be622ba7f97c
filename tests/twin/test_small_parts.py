"""The core's data structures alone, held to a dictionary, a list and a sorted list after every operation."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from sim.core import block_pool, prefix_cache, queues
from sim.core.hashing import NO_KEY
from sim.core.make_state import make_cache, make_pool, make_queues
from sim.core.state import (
    ARRIVAL,
    DUP_NEXT,
    FREE_BLOCKS,
    NUM_WAITING,
    PRIORITY,
    REF,
    REQUEST_FIELDS,
    TIE,
    WAITING_HEAP,
    Cache,
    Int64s,
    Pool,
)
from tests.twin.ours import core_plan
from tests.twin.pool import BlockPool
from tests.twin.settings import Settings

PLACES = 16
BLOCKS = 7
# Keys that want one of three places, so that chains form.
KEYS = [np.uint64(home + PLACES * turn) for home in (6, 7, 0) for turn in (1, 2, 3)]


def small_cache() -> tuple[Pool, Cache]:
    """A pool of six blocks whose prefix cache has only sixteen places."""
    pool, _ = make_pool(BLOCKS)
    return pool, make_cache(pool, PLACES)


def ring(pool: Pool, first: int) -> list[int]:
    """The blocks with one key, from the one that answers on."""
    found = [first]
    while (block := int(pool.links[found[-1], DUP_NEXT])) != first:
        found.append(block)
    return found


def chained(cache: Cache) -> list[int]:
    """All blocks in a chain of the map."""
    found = [int(block) for block in cache.first if block]
    for block in found:
        found += [int(cache.following[block])] * bool(cache.following[block])
    return sorted(found)


@given(st.lists(st.tuples(st.integers(1, BLOCKS - 1), st.sampled_from(KEYS)), max_size=40))
@hypothesis_settings(max_examples=400)
def test_the_prefix_cache_is_a_dictionary_of_lists(operations: list[tuple[int, np.uint64]]) -> None:
    """A block without a key gets one, a block with a key loses it; every key answers with its oldest block."""
    pool, cache = small_cache()
    expected: dict[np.uint64, list[int]] = {key: [] for key in KEYS}
    for block, key in operations:
        if pool.key[block] == NO_KEY:
            prefix_cache.insert(pool, cache, key, block)
            expected[key].append(block)
        else:
            expected[pool.key[block]].remove(block)
            prefix_cache.remove(pool, cache, block)
        for known, blocks in expected.items():
            first = prefix_cache.lookup(cache, known)
            assert first == (blocks[0] if blocks else -1)
            assert not blocks or ring(pool, first) == blocks
        assert chained(cache) == sorted(blocks[0] for blocks in expected.values() if blocks)


@given(st.data())
@hypothesis_settings(max_examples=200)
def test_the_free_queue_is_a_list(data: st.DataObject) -> None:
    """Blocks are taken, cached, shared and freed; order, references and keys stay those of the twin's pool."""
    num_blocks = data.draw(st.integers(3, 12))
    pool, cache = make_pool(num_blocks)
    twin = BlockPool(num_blocks)
    tables: list[list[int]] = []
    for _ in range(data.draw(st.integers(1, 30))):
        what = data.draw(st.sampled_from(["take", "key", "share", "free"]))
        if what == "take" and twin.free:
            count = data.draw(st.integers(1, len(twin.free)))
            tables.append([int(block_pool.take(pool, cache, 0)) for _ in range(count)])
            assert tables[-1] == twin.take(count)
        elif what == "key" and tables:
            block = data.draw(st.sampled_from(data.draw(st.sampled_from(tables))))
            if block not in twin.cache.keys:
                name = data.draw(st.integers(1, 4))
                prefix_cache.insert(pool, cache, np.uint64(name), block)
                twin.cache.add((0, 0, 1, ((name, 0),)), block)
        elif what == "share" and twin.cache.keys:
            block = data.draw(st.sampled_from(sorted(twin.cache.keys)))
            block_pool.touch(pool, block)
            twin.touch(block)
            tables.append([block])
        elif what == "free" and tables:
            table = tables.pop(data.draw(st.integers(0, len(tables) - 1)))
            release_all(pool, [0, *table])
            twin.release([0, *table])
        assert block_pool.free_queue(pool) == twin.free
        assert int(pool.counters[FREE_BLOCKS]) == len(twin.free)
        assert pool.links[:num_blocks, REF].tolist() == twin.references
        assert [block for block in range(num_blocks) if pool.key[block] != NO_KEY] == sorted(twin.cache.keys)


def release_all(pool: Pool, blocks: list[int]) -> None:
    """Free blocks in one go, as a table is freed."""
    front = pool.links.shape[0] - 1
    for block in blocks:
        front = block_pool.release(pool, block, front)


def in_line(requests: Int64s, priority: bool, waiting: list[int], slot: int, preempted: bool) -> list[int]:
    """A waiting list with one more request: at an end, or where priority, arrival and id put it."""
    longer = [slot, *waiting] if preempted else [*waiting, slot]
    if priority:
        longer.sort(key=lambda other: tuple(requests[other, [PRIORITY, ARRIVAL, TIE]].tolist()))
    return longer


@given(st.booleans(), st.data())
@hypothesis_settings(max_examples=300)
def test_the_waiting_heap_is_a_sorted_list(priority: bool, data: st.DataObject) -> None:
    """New requests, preempted ones, the first one taken, any one discarded: the next one is always the list's first."""
    slots = 9
    requests = np.zeros((slots, REQUEST_FIELDS), np.int64)
    requests[:, TIE] = np.random.default_rng(0).permutation(slots)
    requests[:, [PRIORITY, ARRIVAL]] = data.draw(
        st.lists(st.tuples(st.integers(0, 2), st.integers(0, 2)), min_size=slots, max_size=slots)
    )
    state = make_queues(core_plan(Settings()), slots, 2)
    waiting: list[int] = []
    ran: list[int] = []
    new = list(range(slots))
    for what in data.draw(st.lists(st.sampled_from(["new", "preempted", "pop", "discard"]), max_size=40)):
        source = {"new": new, "preempted": ran}.get(what)
        if source:
            slot = source.pop(data.draw(st.integers(0, len(source) - 1)))
            (queues.push_new if what == "new" else queues.push_preempted)(requests, state, slot, priority)
            waiting = in_line(requests, priority, waiting, slot, what == "preempted")
        elif what == "pop" and waiting:
            ran.append(waiting.pop(0))
            assert queues.pop(requests, state) == ran[-1]
        elif what == "discard" and waiting:
            new.append(waiting.pop(data.draw(st.integers(0, len(waiting) - 1))))
            queues.discard(requests, state, new[-1])
        heap = state.lists[WAITING_HEAP, : state.counters[NUM_WAITING]].tolist()
        assert sorted(heap) == sorted(waiting)
        assert not waiting or heap[0] == waiting[0]
