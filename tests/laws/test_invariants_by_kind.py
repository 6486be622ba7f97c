"""The invariants about block tables fail for every kind of group when its table is damaged."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from sim.core import state as core
from sim.core.block_pool import release, take
from sim.invariants import InvariantError, check_invariants
from sim.machine import Machine
from tests.twin.kinds import CLASSES
from tests.twin.ours import arrivals, make_machine
from tests.twin.settings import Group, Settings, ask


def row(machine: Machine) -> int:
    """The row of the tables of the request that runs."""
    return int(machine.state.requests[next(machine.running_slots()), core.ROW])


KINDS_OF_DAMAGE = {
    "full": (Group(4), "a null block, allowed range(0, 0)"),
    "sliding_window": (Group(4, 6), "a null block, allowed range(0, 3)"),
    "chunked_local": (Group(4, 8, "chunked_local"), "a null block, allowed range(0, 4)"),
    "rswa": (Group(4, 4, "rswa"), "a null block, allowed range(3, 4)"),
    "mamba_align": (Group(4, kind="mamba_align", spec_blocks=1), "a null block, allowed range(0, 4)"),
    "mamba_none": (Group(40, kind="mamba_none"), "a null block, allowed range(0, 0)"),
    "circular": (Group(4, kind="circular"), "a null block, allowed range(0, 0)"),
    "cross": (Group(4, kind="cross"), "a null block, allowed range(0, 0)"),
    "replay": (Group(4, 6, "replay"), "a null block, allowed range(0, 3)"),
}
"""By kind: a group, and what is said of a null block in its table's last entry."""


def running_alone(group: Group) -> Machine:
    """A request of 10 tokens and several outputs in full attention and a group of some kind."""
    caching = group.kind not in ("mamba_none", "cross")
    encoder = 11 if group.kind == "cross" else 0
    settings = Settings(
        groups=(group, Group(4)),
        num_blocks=40,
        max_model_len=40,
        enable_prefix_caching=caching,
        encoder_budget=encoder,
    )
    made = make_machine(settings)
    made.submit(arrivals([replace(ask("a", 0, [(7, 10)], 20), encoder_tokens=encoder)]))
    for _ in range(12):
        made.advance(one_step=True)
    check_invariants(made)
    return made


@pytest.mark.parametrize("kind", KINDS_OF_DAMAGE)
def test_a_null_block_where_the_kind_leaves_none_is_noticed(kind: str) -> None:
    group, text = KINDS_OF_DAMAGE[kind]
    machine = running_alone(group)
    blocks, marks = machine.state.tables.blocks[row(machine), 0], machine.state.tables.marks[row(machine), 0]
    last = marks[core.LENGTH] - 1
    release(machine.state.pool, int(blocks[last]), machine.state.pool.links.shape[0] - 1)
    blocks[last] = core.NULL_BLOCK
    with pytest.raises(InvariantError, match=re.escape(text)):
        check_invariants(machine)


def test_every_kind_is_damaged() -> None:
    assert set(KINDS_OF_DAMAGE) == set(CLASSES)


@pytest.mark.parametrize("kind", KINDS_OF_DAMAGE)
def test_a_table_too_short_for_what_is_computed_is_noticed(kind: str) -> None:
    machine = running_alone(KINDS_OF_DAMAGE[kind][0])
    blocks, marks = machine.state.tables.blocks[row(machine), 0], machine.state.tables.marks[row(machine), 0]
    while marks[core.LENGTH] > 0:
        marks[core.LENGTH] -= 1
        last = int(blocks[marks[core.LENGTH]])
        if last != core.NULL_BLOCK:
            release(machine.state.pool, last, machine.state.pool.links.shape[0] - 1)
    marks[core.HEAD] = 0
    with pytest.raises(InvariantError, match=r"invariant 6 broken: slot 0, group 0: computed 2[01], the table holds "):
        check_invariants(machine)


@pytest.mark.parametrize("kind", KINDS_OF_DAMAGE)
def test_more_blocks_than_the_kind_may_hold_are_noticed(kind: str) -> None:
    machine = running_alone(KINDS_OF_DAMAGE[kind][0])
    machine = _with_small_batches(machine)
    blocks, marks = machine.state.tables.blocks[row(machine), 0], machine.state.tables.marks[row(machine), 0]
    for entry in range(marks[core.LENGTH], marks[core.LENGTH] + 6):
        blocks[entry] = take(machine.state.pool, machine.state.cache, 0)
    marks[core.LENGTH] += 6
    with pytest.raises(InvariantError, match="invariant 9 broken: slot 0, group 0: "):
        check_invariants(machine)


def _with_small_batches(machine: Machine) -> Machine:
    """As if batches had been of two tokens, so that little may be in flight."""
    machine.plan = machine.plan._replace(max_num_batched_tokens=2)
    check_invariants(machine)
    return machine
