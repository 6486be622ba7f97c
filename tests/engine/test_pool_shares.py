"""What every byte of the pool is: counted again from tables and keys after each step, and adding up to the pool."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from sim.core.advance import STEPPED
from sim.core.hashing import NO_KEY
from sim.core.output import SHARE_ROUNDING, STEP_ROWS
from sim.core.state import CACHED, COMPUTED, HELD_CACHED, HELD_LIVE, LENGTH, NUM_BLOCKS, REF, ROW
from sim.machine import Machine
from sim.pool_shares import meaning, share_columns
from sim.specs import FullAttentionSpec, SlidingWindowSpec, Spec
from tests.core.explained_run import explained
from tests.core.layers_run import asked, full, planned, state
from tests.twin.drawn import seeded_case
from tests.twin.ours import arrivals, make_machine


def counted(machine: Machine) -> np.ndarray[Any, Any]:
    """Per group, the blocks that tables name and those that are free and have a key."""
    pool = machine.state.pool
    found = np.zeros((machine.plan.block_size.size, 2), np.int64)
    for group in range(len(found)):
        named = {block for slot in machine.running_slots() for block in machine.block_table(slot)[group]} - {0}
        assert set(pool.group[list(named)].tolist()) <= {group}
        found[group, HELD_LIVE] = len(named)
    blocks = np.arange(int(pool.counters[NUM_BLOCKS]))
    free = blocks[(pool.links[blocks, REF] == 0) & (pool.key[blocks] != NO_KEY)]
    np.add.at(found, (pool.group[free], HELD_CACHED), 1)
    return found


@pytest.mark.parametrize("seed", range(40))
def test_blocks_are_counted_where_they_change_hands(seed: int) -> None:
    settings, asks = seeded_case(seed)
    machine = make_machine(settings, log_tables=False, explain=True)
    machine.submit(arrivals(sorted(asks, key=lambda ask: ask.arrival_ns)))
    for _ in range(300):
        if machine.advance(one_step=True) != STEPPED:
            break
        assert machine.state.pool.held.tolist() == counted(machine).tolist()
        _check_rounding(machine)


def _check_rounding(machine: Machine) -> None:
    """Of full attention: the slots of all tables less the tokens computed, or hit where some are computed again."""
    row = machine.state.output.shares[int(machine.state.output.counters[STEP_ROWS]) - 1]
    rows = [machine.state.requests[slot] for slot in machine.running_slots()]
    for group in np.flatnonzero(machine.plan.kind == 0).tolist():
        size = int(machine.plan.block_size[group])
        slots = [int(machine.state.tables.marks[request[ROW], group, LENGTH]) * size for request in rows]
        tokens = [int(request[COMPUTED]) for request in rows]
        if machine.plan.prefix_replay_tokens > 0:
            offered = [int(machine.state.tables.marks[request[ROW], group, CACHED]) * size for request in rows]
            tokens = [max(pair) for pair in zip(tokens, offered, strict=True)]
        assert row[group, SHARE_ROUNDING] == sum(slots) - sum(tokens)


def columns_of(layers: list[Spec], requests: list[dict[str, Any]], **flags: Any) -> dict[str, list[int]]:
    """The columns of a run."""
    loop, _ = explained(layers, requests, 60, **flags)
    plan, _ = planned(layers, 60, **flags)
    columns = share_columns(loop.records.shares(), plan)
    total = np.sum(list(columns.values()), axis=0)
    assert set(total.tolist()) == {(plan.num_blocks - 1) * plan.block_bytes}
    return {name: column.tolist() for name, column in columns.items()}


def test_one_request_of_full_attention() -> None:
    """Pages of 128 bytes for 4 tokens. 6 tokens hold two blocks, two slots free; then 7, 8; nothing is padded."""
    columns = columns_of([full()], [asked("a", [["x", 6]], 3)])
    assert columns["group_0_live_bytes"] == [6 * 32, 7 * 32, 8 * 32]
    assert columns["group_0_rounding_bytes"] == [64, 32, 0]
    assert columns["group_0_padding_bytes"] == [0, 0, 0]
    assert columns["group_0_cached_bytes"] == [0, 0, 0]
    assert columns["free_bytes"] == [57 * 128] * 3


def test_what_ended_stays_cached() -> None:
    columns = columns_of([full()], [asked("a", [["x", 6]], 1), asked("b", [["y", 4]], 1, 1000)])
    assert columns["group_0_cached_bytes"] == [0, 128]
    assert columns["group_0_live_bytes"] == [192, 128]


def test_padding_of_pages_and_of_groups() -> None:
    """Groups of two layers: the third window layer has one to itself, and half of its two blocks is padding."""
    window = SlidingWindowSpec(4, 1, 8, "bfloat16", sliding_window=9)
    columns = columns_of([full(), full(), window, window, window], [asked("a", [["x", 8]], 1)])
    by_group = [columns[f"group_{group}_padding_bytes"] for group in range(3)]
    assert sorted(by_group) == [[0], [0], [2 * 128]]
    padded = FullAttentionSpec(4, 1, 8, "bfloat16", page_size_padded=160)
    columns = columns_of([padded], [asked("a", [["x", 8]], 1)])
    assert columns["group_0_padding_bytes"] == [2 * 32]
    assert columns["group_0_live_bytes"] == [2 * 128]


def test_a_state_fills_its_block() -> None:
    columns = columns_of([full(), state("align")], [asked("a", [["x", 6]], 1)])
    assert columns["group_0_rounding_bytes"] == [0, 64]
    assert columns["group_1_rounding_bytes"] == [0, 0]
    assert columns["group_1_live_bytes"] == [128, 256]


def test_every_column_says_what_it_counts() -> None:
    columns = columns_of([full()], [asked("a", [["x", 6]], 1)])
    assert all(meaning(name) for name in columns)


def test_a_run_that_is_not_explained_counts_nothing() -> None:
    plan, _ = planned([full()])
    assert share_columns(np.zeros((5, 0, 3), np.int64), plan) == {}
