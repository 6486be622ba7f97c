"""Each numbered invariant really fails when the state is damaged in the way it is there to notice."""

from __future__ import annotations

import re
from collections.abc import Callable

import numpy as np
import pytest

from sim.core import state as core
from sim.core.hashing import NO_KEY
from sim.core.prefix_cache import remove
from sim.engine import Engine
from sim.invariants import InvariantError, check_invariants
from sim.machine import Machine
from tests.core.layers_run import asked, full, machine_of, state
from tests.oracle.our_side import batch_of
from tests.twin.ours import arrivals, make_machine
from tests.twin.settings import Group, Settings, ask


@pytest.fixture
def machine() -> Machine:
    """Two groups; a, b, c run and share a prefix, d waits, e has yet to arrive, one that is gone left its cache."""
    settings = Settings(groups=(Group(4), Group(4, 6)), num_blocks=30, max_model_len=40, max_num_seqs=3)
    made = make_machine(settings)
    shared = [(7, 8)]
    made.submit(
        arrivals(
            [
                ask("gone", 0, [(5, 9)], 1),
                *(ask(name, 10, [*shared, (i, 3)], 9) for i, name in enumerate("abcd")),
                ask("e", 10_000, [(6, 4)], 1),
            ]
        )
    )
    for _ in range(4):
        made.advance(one_step=True)
    assert (made.num_running, made.num_waiting) == (3, 1)
    check_invariants(made)
    return made


@pytest.fixture
def hit_inside() -> Machine:
    """Full attention and states whose hits may end inside blocks, at rest; a prompt's tail is a second key."""
    made = machine_of([full(), state("align")], prefix_match_unit=2)
    Engine(made, iter([batch_of([asked("a", [["x", 7]], 9)])])).run()
    check_invariants(made)
    return made


def running(machine: Machine) -> int:
    """The first running slot."""
    return next(machine.running_slots())


def row(machine: Machine) -> int:
    """Its row of the tables."""
    return int(machine.state.requests[running(machine), core.ROW])


def keyed_free_block(machine: Machine) -> int:
    """A free block that is still cached."""
    free: list[int] = machine.free_queue().tolist()
    return next(block for block in free if machine.state.pool.key[block] != NO_KEY)


def lose_a_free_block(machine: Machine) -> None:
    links = machine.state.pool.links
    sentinel = links.shape[0] - 1
    links[sentinel, core.NEXT] = links[links[sentinel, core.NEXT], core.NEXT]


def misdirect_the_way_back(machine: Machine) -> None:
    machine.state.pool.links[machine.free_queue()[1], core.PREV] = machine.free_queue()[1]


def close_the_free_queue_on_itself(machine: Machine) -> None:
    machine.state.pool.links[machine.free_queue()[1], core.NEXT] = machine.free_queue()[0]


def miscount_free_blocks(machine: Machine) -> None:
    machine.state.pool.counters[core.FREE_BLOCKS] += 1


def drop_a_table_entry(machine: Machine) -> None:
    machine.state.tables.marks[row(machine), 0, core.LENGTH] -= 1


def miscount_references(machine: Machine) -> None:
    machine.state.pool.links[machine.state.tables.blocks[row(machine), 0, 0], core.REF] += 1


def reference_a_free_block(machine: Machine) -> None:
    machine.state.pool.links[machine.free_queue()[0], core.REF] = 1


def name_another_block(machine: Machine) -> None:
    blocks = machine.state.tables.blocks[row(machine), 0]
    blocks[0], blocks[1] = blocks[1], blocks[1]


def rename_a_cached_block(machine: Machine) -> None:
    machine.state.pool.key[keyed_free_block(machine)] += np.uint64(1)


def forget_a_cached_block(machine: Machine) -> None:
    """The block's key stays on it; the map has lost it."""
    cache = machine.state.cache
    cache.first[np.flatnonzero(cache.first)[0]] = core.NULL_BLOCK


def misplace_a_key(machine: Machine) -> None:
    """Move a chain to a place where a look-up does not come by."""
    first = machine.state.cache.first
    place, empty = int(np.flatnonzero(first)[0]), int(np.flatnonzero(first == core.NULL_BLOCK)[0])
    first[empty], first[place] = first[place], core.NULL_BLOCK


def close_a_chain_on_itself(machine: Machine) -> None:
    cache = machine.state.cache
    block = cache.first[np.flatnonzero(cache.first)[0]]
    cache.following[block] = block


def point_a_key_at_another_block(machine: Machine) -> None:
    cache = machine.state.cache
    place = int(np.flatnonzero(cache.first)[0])
    keyed = machine.state.pool.key[machine.free_queue()] != NO_KEY
    cache.first[place] = machine.free_queue()[~keyed][0]


def mix_two_keys_in_a_ring(machine: Machine) -> None:
    cache, links = machine.state.cache, machine.state.pool.links
    one, other = (cache.first[place] for place in np.flatnonzero(cache.first)[:2])
    links[one, core.DUP_NEXT], links[other, core.DUP_NEXT] = other, one


def key_the_null_block(machine: Machine) -> None:
    machine.state.pool.key[core.NULL_BLOCK] = machine.state.pool.key[keyed_free_block(machine)]


def free_the_null_block(machine: Machine) -> None:
    """In place of another block, so that the count is right."""
    links = machine.state.pool.links
    first = int(machine.free_queue()[0])
    before, after = links[first, core.PREV], links[first, core.NEXT]
    links[core.NULL_BLOCK, [core.PREV, core.NEXT]] = before, after
    links[before, core.NEXT] = links[after, core.PREV] = core.NULL_BLOCK


def lose_a_row(machine: Machine) -> None:
    machine.state.queues.counters[core.NUM_FREE_ROWS] -= 1


def lose_a_slot(machine: Machine) -> None:
    machine.state.queues.counters[core.NUM_FREE_SLOTS] -= 1


def forget_a_waiting_request(machine: Machine) -> None:
    machine.state.queues.counters[core.NUM_WAITING] -= 1


def lose_an_arrival(machine: Machine) -> None:
    machine.state.queues.counters[core.NUM_INBOX] -= 1


def run_a_waiting_request_in_name_only(machine: Machine) -> None:
    slot = machine.state.queues.lists[core.WAITING_HEAP, 0]
    machine.state.requests[slot, core.STATUS] = core.RUNNING


def compute_more_than_known(machine: Machine) -> None:
    request = machine.state.requests[running(machine)]
    request[core.COMPUTED] = request[core.NUM_TOKENS] + request[core.PLACEHOLDERS] + 1


def compute_without_room(machine: Machine) -> None:
    request = machine.state.requests[running(machine)]
    request[core.NUM_TOKENS] = request[core.COMPUTED] = 40


def take_a_key_and_leave_the_second(machine: Machine) -> None:
    pool = machine.state.pool
    remove(pool, machine.state.cache, int(pool.links[pool.counters[core.NUM_BLOCKS], core.REF]))


def forget_a_second_key(machine: Machine) -> None:
    links = machine.state.pool.links
    links[links[machine.state.pool.counters[core.NUM_BLOCKS], core.REF], core.SECOND_KEY] = 0


@pytest.mark.parametrize("damage", [take_a_key_and_leave_the_second, forget_a_second_key])
def test_a_lost_second_key_is_noticed(hit_inside: Machine, damage: Callable[[Machine], None]) -> None:
    damage(hit_inside)
    with pytest.raises(InvariantError, match="invariant 7 broken: row 60 is a second key of block 3, which "):
        check_invariants(hit_inside)


@pytest.mark.parametrize(
    ("number", "damage"),
    [
        (1, lose_a_free_block),
        (1, misdirect_the_way_back),
        (1, close_the_free_queue_on_itself),
        (1, miscount_free_blocks),
        (1, drop_a_table_entry),
        (2, miscount_references),
        (2, reference_a_free_block),
        (2, name_another_block),
        (3, rename_a_cached_block),
        (3, forget_a_cached_block),
        (3, misplace_a_key),
        (3, close_a_chain_on_itself),
        (3, mix_two_keys_in_a_ring),
        (3, point_a_key_at_another_block),
        (4, key_the_null_block),
        (4, free_the_null_block),
        (5, lose_a_row),
        (5, lose_a_slot),
        (5, forget_a_waiting_request),
        (5, lose_an_arrival),
        (5, run_a_waiting_request_in_name_only),
        (6, compute_more_than_known),
        (6, compute_without_room),
    ],
    ids=lambda value: value.__name__ if callable(value) else str(value),
)
def test_damage_is_noticed(machine: Machine, number: int, damage: Callable[[Machine], None]) -> None:
    damage(machine)
    with pytest.raises(InvariantError, match=re.escape(f"invariant {number} broken: ")):
        check_invariants(machine)
