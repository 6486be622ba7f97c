"""Room for live requests: slots and spans grow when a window does not fit, and are used again."""

from __future__ import annotations

import numpy as np
import pytest

from sim.core.advance import HORIZON, IDLE
from sim.core.inbox import submit
from sim.core.make_state import make_state
from sim.core.output import F_ARRIVAL, F_CACHED, F_FIRST_SCHEDULED, F_ORDINAL
from sim.core.state import FIRST_SPAN, FREE_SLOT, INBOX_HEAD, NUM_FREE_SLOTS, NUM_INBOX, ORDINAL, SPAN_COUNT, STATUS
from sim.invariants import check_invariants
from sim.machine import Machine
from tests.engine.serving import serve
from tests.twin.ours import arrivals, make_machine
from tests.twin.settings import Ask, Settings, ask

FEW = Settings(max_num_seqs=2, num_blocks=30)


def small_machine(slots: int = 4, settings: Settings = FEW, *, log_tables: bool = False) -> Machine:
    """A machine with room for a handful of live requests."""
    machine = make_machine(settings)
    machine.state = make_state(machine.plan, settings.num_blocks, slots=slots, log_tables=log_tables)
    return machine


def crowd(count: int, gap_ns: int = 0) -> list[Ask]:
    """Requests that share prefixes and have one to four spans."""
    return [
        ask(
            f"r{i}",
            gap_ns * i,
            [(1, 4 + i % 3), *((10 * i + j, 1 + j) for j in range(i % 3))],
            1 + i % 4,
            priority=i % 3,
        )
        for i in range(count)
    ]


@pytest.mark.parametrize("rows", [1, 3, 50])
@pytest.mark.parametrize("gap_ns", [0, 7])
def test_more_live_requests_than_slots(rows: int, gap_ns: int) -> None:
    """Fifty requests wait where there was room for four; nothing else changes."""
    asks = crowd(50, gap_ns)
    small = serve(asks, machine=small_machine(log_tables=True), rows=rows, logged=True)
    assert small.machine.state.requests.shape[0] > 4
    roomy = serve(asks, FEW, rows=rows, logged=True)
    assert small.log == roomy.log
    assert small.requests["id"] == roomy.requests["id"]
    assert small.requests["finish_s"].tolist() == roomy.requests["finish_s"].tolist()


def test_slots_grow_by_doubling_and_keep_who_is_there() -> None:
    machine = small_machine(slots=4)
    for first in range(0, 12, 3):
        machine.submit(arrivals(crowd(3, 100_000), first))
        check_invariants(machine)
    state = machine.state
    assert state.requests.shape[0] == 16
    assert (int(state.queues.counters[NUM_INBOX]), int(state.queues.counters[NUM_FREE_SLOTS])) == (12, 4)
    live = state.requests[state.requests[:, STATUS] != FREE_SLOT]
    assert sorted(live[:, ORDINAL].tolist()) == list(range(12))


def test_the_inbox_ring_turns_and_grows_in_order() -> None:
    """Arrivals are taken from the front while new ones are put behind, past the end of the ring."""
    machine = small_machine(slots=4)
    sent, served = 0, []
    for _ in range(10):
        machine.submit(arrivals([ask(f"r{sent + i}", 1000 * (sent + i), [(1, 4)], 1) for i in range(3)], sent))
        sent += 3
        assert machine.advance(1000 * (sent - 1)) == HORIZON
    assert machine.advance() == IDLE
    assert int(machine.state.queues.counters[INBOX_HEAD]) > 0
    served = machine.state.output.finished[:sent, F_ORDINAL].tolist()
    assert served == list(range(30))


def test_spans_of_finished_requests_are_used_again() -> None:
    """A thousand requests, one live at a time, in room for eight spans."""
    machine = small_machine(slots=4)
    room = machine.state.spans.base.size
    for i in range(1000):
        machine.submit(arrivals([ask(f"r{i}", 1000 * i, [(i, 3), (1, 2)], 1)], i))
        machine.advance()
    assert machine.state.spans.base.size == room
    assert machine.state.requests.shape[0] == 4


def test_spans_are_moved_together_and_still_name_the_same_prefixes() -> None:
    """A long-lived request sits behind the spans of a finished one; room is made while it runs."""
    machine = small_machine(slots=4, settings=Settings(max_num_seqs=3, num_blocks=40))
    machine.submit(arrivals([ask("short", 0, [(5, 1), (6, 1), (7, 1)], 1), ask("long", 1, [(1, 6), (2, 6)], 40)], 0))
    machine.advance(100)
    live = machine.state.requests[machine.state.requests[:, STATUS] != FREE_SLOT]
    assert live[:, [ORDINAL, FIRST_SPAN, SPAN_COUNT]].tolist() == [[1, 4, 3]]
    machine.submit(arrivals([ask("sibling", 100, [(1, 6), (2, 7)], 1)], 2))
    live = machine.state.requests[machine.state.requests[:, STATUS] != FREE_SLOT]
    assert sorted(live[:, [ORDINAL, FIRST_SPAN, SPAN_COUNT]].tolist()) == [[1, 0, 3], [2, 3, 3]]
    machine.advance()
    hits = dict(machine.state.output.finished[:3, [F_ORDINAL, F_CACHED]].tolist())
    assert hits == {0: 0, 1: 0, 2: 12}


def test_spans_grow_when_all_are_live() -> None:
    machine = small_machine(slots=8)
    assert machine.state.spans.base.size == 16
    machine.submit(arrivals([ask(f"r{i}", 0, [(j, 1) for j in range(20)], 1) for i in range(2)]))
    assert machine.state.spans.base.size >= 42
    machine.advance()
    hits = machine.state.output.finished[:2, F_CACHED].tolist()
    assert hits == [0, 16]


def test_an_empty_window_changes_nothing() -> None:
    machine = small_machine()
    before = machine.state
    assert submit(before, arrivals([])) is before


def test_an_arrival_in_the_past_joins_at_the_next_schedule() -> None:
    machine = small_machine()
    machine.submit(arrivals([ask("a", 0, [(1, 4)], 5)]))
    machine.advance(one_step=True)
    machine.advance(one_step=True)
    machine.submit(arrivals([ask("late", 3, [(2, 4)], 1)], 1))
    machine.advance()
    records = machine.state.output.finished[:2, [F_ORDINAL, F_ARRIVAL, F_FIRST_SCHEDULED]].tolist()
    assert sorted(records) == [[0, 0, 0], [1, 3, 20]]


def test_state_follows_what_is_live_not_the_length_of_the_trace() -> None:
    machine = small_machine(slots=8)
    shapes = {np.shape(array) for array in (machine.state.requests, machine.state.spans.base)}
    serve(crowd(2000, 40), machine=machine, rows=5, checked=False)
    assert {np.shape(array) for array in (machine.state.requests, machine.state.spans.base)} == shapes
