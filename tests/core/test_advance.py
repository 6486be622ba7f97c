"""The loop over time: why it returns, and that where it is cut makes no difference."""

from __future__ import annotations

import numpy as np
import pytest

from sim.core.advance import HORIZON, IDLE, RECORDS_FULL, STALLED, STEPPED
from sim.core.make_state import make_state
from sim.core.output import F_FINISH, FINISH_ROWS, FINISHED_COUNT, S_END, S_START, S_TOKENS, STEP_ROWS
from sim.machine import Machine
from tests.twin.drafts import CERTAIN, NO_DRAFTS, Drafts
from tests.twin.ours import arrivals, make_machine
from tests.twin.settings import Settings, ask


def machine_with(settings: Settings, *, records: int = 16384) -> Machine:
    """A machine with buffers of its own size."""
    machine = make_machine(settings)
    machine.state = make_state(machine.plan, settings.num_blocks, records=records)
    return machine


def times(machine: Machine) -> list[list[int]]:
    """Start, end and tokens of the steps in the buffer."""
    output = machine.state.output
    found: list[list[int]] = output.steps[: output.counters[STEP_ROWS], [S_START, S_END, S_TOKENS]].tolist()
    return found


def drain(machine: Machine) -> None:
    machine.state.output.counters[[STEP_ROWS, FINISH_ROWS]] = 0


def test_an_empty_machine_is_idle() -> None:
    machine = make_machine(Settings())
    assert machine.advance() == IDLE
    assert machine.now_ns == 0


def test_nothing_is_scheduled_at_or_after_the_horizon() -> None:
    """Steps at 0 and 10; the third would come at 20. An arrival at the horizon stays where it is."""
    machine = make_machine(Settings())
    machine.submit(arrivals([ask("a", 0, [(1, 4)], 5), ask("b", 20, [(2, 4)], 1)]))
    assert machine.advance(20) == HORIZON
    assert times(machine) == [[0, 10, 4], [10, 20, 1]]
    assert machine.advance(20) == HORIZON
    assert len(times(machine)) == 2
    assert machine.advance(21) == HORIZON
    assert times(machine)[2] == [20, 30, 5]


def test_an_output_due_after_the_horizon_waits() -> None:
    machine = make_machine(Settings())
    machine.submit(arrivals([ask("a", 0, [(1, 4)], 1)]))
    assert machine.advance(9) == HORIZON
    assert int(machine.state.output.counters[FINISHED_COUNT]) == 0
    assert machine.advance(11) == IDLE
    assert int(machine.state.output.counters[FINISHED_COUNT]) == 1


def test_time_jumps_to_the_next_arrival() -> None:
    machine = make_machine(Settings())
    machine.submit(arrivals([ask("a", 1000, [(1, 4)], 1)]))
    assert machine.advance(1000) == HORIZON
    assert machine.now_ns == 0
    assert machine.advance() == IDLE
    assert times(machine) == [[1000, 1010, 4]]
    assert machine.now_ns == 1010


def test_one_step_returns_before_the_outputs() -> None:
    machine = make_machine(Settings())
    machine.submit(arrivals([ask("a", 0, [(1, 4)], 2)]))
    assert [machine.advance(one_step=True) for _ in range(3)] == [STEPPED, STEPPED, IDLE]


def test_full_records_are_handed_over_and_the_run_goes_on() -> None:
    machine = machine_with(Settings(max_num_seqs=2), records=3)
    machine.submit(arrivals([ask(name, 0, [(i, 4)], 4) for i, name in enumerate("abcdef", 1)]))
    steps: list[list[int]] = []
    reasons: list[int] = []
    finished = 0
    while not reasons or reasons[-1] == RECORDS_FULL:
        reasons.append(machine.advance())
        assert len(times(machine)) <= 3
        steps += times(machine)
        finished += int(machine.state.output.counters[FINISH_ROWS])
        drain(machine)
    assert reasons == [RECORDS_FULL] * 4 + [IDLE]
    assert [start for start, _, _ in steps] == list(range(0, 120, 10))
    assert finished == 6


def test_a_request_that_can_never_fit_stalls_the_machine() -> None:
    """vLLM refuses such a pool at start, and so does the plan; the machine itself has to notice."""
    machine = make_machine(Settings(num_blocks=3))
    machine.submit(arrivals([ask("a", 0, [(1, 12)], 1)]))
    assert machine.advance() == STALLED
    assert (machine.num_waiting, machine.num_running) == (1, 0)


def test_a_stalled_machine_serves_what_comes_later_and_fits() -> None:
    """By priority the late one goes first."""
    machine = make_machine(Settings(num_blocks=3, priority_policy=True))
    machine.submit(arrivals([ask("big", 0, [(1, 12)], 1, priority=1)]))
    assert machine.advance() == STALLED
    machine.submit(arrivals([ask("small", 50, [(2, 4)], 1)], 1))
    assert machine.advance() == STALLED
    output = machine.state.output
    assert output.finished[: output.counters[FINISH_ROWS], F_FINISH].tolist() == [60]


@pytest.mark.parametrize("drafts", [NO_DRAFTS, Drafts(acceptance=(CERTAIN // 2, CERTAIN // 4))])
@pytest.mark.parametrize("async_scheduling", [False, True])
@pytest.mark.parametrize("stages", [1, 2, 3])
def test_it_does_not_matter_where_a_run_is_cut(async_scheduling: bool, stages: int, drafts: Drafts) -> None:
    """Horizons at every nanosecond, at odd ones, or none, and requests that come just in time: the same records."""
    settings = Settings(
        drafts=drafts,
        num_blocks=17,
        pipeline_parallel_size=stages,
        async_scheduling=async_scheduling,
        priority_policy=True,
        max_num_batched_tokens=16,
    )
    asks = [ask(f"r{i}", 7 * i, [(1 + i % 3, 5 + i)], 3 + i % 5, priority=i % 2) for i in range(12)]
    found = []
    for stride in (1, 13, 10_000):
        machine = make_machine(settings)
        to_come = list(enumerate(asks))
        horizon, reason = 0, HORIZON
        while reason == HORIZON or to_come:
            while to_come and to_come[0][1].arrival_ns < horizon + stride:
                ordinal, arriving = to_come.pop(0)
                machine.submit(arrivals([arriving], ordinal))
            horizon += stride
            reason = machine.advance(horizon)
        assert reason == IDLE
        output = machine.state.output
        found.append(
            (times(machine), output.finished[: output.counters[FINISH_ROWS]].tolist(), machine.free_queue().tolist())
        )
    assert found[0] == found[1] == found[2]


def test_pipelined_batches_end_a_share_apart_and_take_their_full_time() -> None:
    """Two stages and steps of 10: a batch scheduled at once after another ends 5 later."""
    machine = make_machine(Settings(pipeline_parallel_size=2, max_num_batched_tokens=8))
    machine.submit(arrivals([ask("a", 0, [(1, 16)], 1)]))
    machine.advance()
    assert times(machine) == [[0, 10, 8], [5, 15, 8]]


def test_times_are_integers_far_into_a_run() -> None:
    """Nanoseconds of a year are more than a double could tell apart."""
    start = 365 * 24 * 3600 * 10**9 + 1
    machine = make_machine(Settings(step_ns=3))
    machine.submit(arrivals([ask("a", start, [(1, 4)], 3)]))
    machine.advance()
    assert times(machine) == [[start + 3 * i, start + 3 * (i + 1), 4 if i == 0 else 1] for i in range(3)]
    assert machine.state.output.steps.dtype == np.int64
