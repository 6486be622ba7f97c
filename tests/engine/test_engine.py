"""The engine: windows of a trace as outside events, records handed over, requests that cannot be served."""

from __future__ import annotations

import pytest

from sim.core.make_state import make_state
from sim.engine import Engine
from sim.engine import server as server_module
from sim.errors import StallError
from sim.machine import Machine
from tests.engine.serving import batch_of, serve
from tests.twin.ours import make_machine
from tests.twin.settings import Settings, ask

TOO_SMALL = Settings(num_blocks=3, max_model_len=40)
"""Two blocks: vLLM and the plan would refuse; a machine made by hand has to cope."""


def test_no_requests_no_run() -> None:
    engine = Engine(make_machine(Settings()), iter([]))
    engine.run()
    assert engine.records.request_columns([], [], 0)["id"] == []
    assert engine.first_arrival_ns is None


def test_the_engine_sleeps_between_arrivals() -> None:
    served = serve([ask("a", 5_000, [(1, 4)], 2), ask("b", 90_000, [(2, 4)], 1)], rows=1)
    assert served.steps["start_s"].tolist() == pytest.approx([5e-6, 5.01e-6, 9e-5])
    assert served.of("b")["queue_s"] == 0.0
    assert served.engine.first_arrival_ns == 5_000


def test_a_window_enters_a_running_machine() -> None:
    """b arrives while a runs, in a window of its own."""
    served = serve([ask("a", 0, [(1, 4)], 5), ask("b", 12, [(2, 4)], 1)], rows=1)
    assert served.of("b")["first_scheduled_s"] == pytest.approx(20e-9)


def test_prompts_without_room_for_a_token_are_rejected_and_counted() -> None:
    """vLLM refuses a prompt of max_model_len tokens; the others keep their ordinals."""
    settings = Settings(max_model_len=16)
    served = serve(
        [ask("fits", 0, [(1, 15)]), ask("full", 0, [(1, 16)]), ask("long", 10, [(1, 40)]), ask("last", 20, [(2, 4)])],
        settings,
    )
    assert served.engine.rejected == ["full", "long"]
    assert served.requests["id"] == ["fits", "last"]
    assert served.of("last")["prompt_tokens"] == 4


@pytest.mark.parametrize("rows", [1, 100])
def test_windows_of_nothing_but_rejected_prompts(rows: int) -> None:
    settings = Settings(max_model_len=16)
    served = serve(
        [ask("long", 0, [(1, 40)]), ask("a", 10, [(2, 4)]), ask("longer", 20, [(1, 60)])], settings, rows=rows
    )
    assert served.requests["id"] == ["a"]
    assert served.engine.rejected == ["long", "longer"]


def test_full_buffers_are_drained_and_nothing_is_lost() -> None:
    machine = make_machine(Settings(max_num_seqs=2))
    machine.state = make_state(machine.plan, 20, records=4)
    served = serve([ask(f"r{i}", 0, [(i + 1, 4)], 5) for i in range(10)], machine=machine)
    assert served.requests["id"] == [f"r{i}" for i in range(10)]
    assert served.steps["step"].tolist() == list(range(1, 26))


def test_observers_see_every_step_and_every_drain() -> None:
    seen: list[int] = []
    drained: list[int] = []

    def on_step(machine: Machine) -> None:
        seen.append(machine.num_steps)

    def on_drain(machine: Machine) -> None:
        drained.append(machine.num_steps)

    batch = batch_of([ask("a", 0, [(1, 4)], 5), ask("b", 12, [(2, 4)], 3)])
    Engine(make_machine(Settings()), iter([batch]), on_step=on_step, on_drain=on_drain).run()
    assert seen == [1, 2, 3, 4, 5]
    assert drained[-1] == 5


def test_a_request_that_can_never_fit_is_a_stall_that_names_it() -> None:
    with pytest.raises(StallError) as stall:
        serve([ask("small", 0, [(1, 4)]), ask("huge one", 5, [(2, 30)])], TOO_SMALL)
    message = str(stall.value)
    assert "'huge one'" in message
    assert "1 waiting, 0 running, 1 finished" in message
    assert "30 tokens" in message
    assert "8 blocks, 2 are free" in message
    assert stall.value.exit_code == 1
    assert "\n" not in message


def test_a_stall_is_only_said_when_no_arrival_can_end_it() -> None:
    """By priority the late one overtakes the one that does not fit; then nothing is left to hope for."""
    settings = Settings(num_blocks=3, max_model_len=40, priority_policy=True)
    batch = batch_of([ask("huge", 0, [(2, 30)], priority=1), ask("late", 1_000, [(1, 4)])])
    engine = Engine(make_machine(settings), iter([batch.slice(0, 1), batch.slice(1, 2)]))
    with pytest.raises(StallError, match="'huge'"):
        engine.run()
    assert engine.records.request_columns(engine.ids, engine.sessions, 0)["id"] == ["late"]


def test_a_stall_is_said_when_the_last_window_is_rejected() -> None:
    settings = Settings(num_blocks=3, max_model_len=40)
    with pytest.raises(StallError, match="'huge'"):
        serve([ask("huge", 0, [(2, 30)]), ask("too long", 1_000, [(1, 50)])], settings, rows=1)


def test_requests_that_only_preempt_each_other_are_a_stall(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of two equally urgent requests that came together vLLM preempts the one that runs longer: neither gets through.

    Each holds up to 3 of 6 blocks when the other needs one more; without the reservation of whole prompts both are
    let in again and again.
    """
    monkeypatch.setattr(server_module, "FUTILE_STEPS", 100)
    settings = Settings(
        num_blocks=7,
        max_model_len=24,
        max_num_batched_tokens=8,
        long_prefill_token_threshold=2,
        priority_policy=True,
        scheduler_reserve_full_isl=False,
        enable_prefix_caching=False,
    )
    machine = make_machine(settings)
    machine.state = make_state(machine.plan, settings.num_blocks, records=50)
    with pytest.raises(StallError, match="requests preempt each other and none has got a token for 100 steps"):
        serve([ask("a", 0, [(1, 20)], 2), ask("b", 0, [(2, 20)], 2)], machine=machine)
    assert machine.num_steps < 400


def test_steps_that_outlast_the_clock_are_no_end_of_the_work() -> None:
    with pytest.raises(StallError, match="clock ends after 146 years, with 0 requests waiting and 1 running"):
        serve([ask("a", 0, [(1, 4)], 5)], Settings(step_ns=1 << 61))
