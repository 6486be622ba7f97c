"""Closed-loop clients: who sends what when, held to arithmetic, to Little's law and to the same run in an open loop."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sim.errors import InputError
from sim.run import run_scenario
from sim.scenario import load_scenario
from tests.engine.serving import Served, batch_of, serve
from tests.twin.settings import Ask, Settings, ask
from workloads import WorkloadError, open_clients
from workloads.batch import RequestBatch

CROWDED = Settings(num_blocks=40, max_num_seqs=6, async_scheduling=True, priority_policy=True)
SCENARIO = """
model: {layers: [{kind: full, count: 2}], num_kv_heads: 1, head_size: 64, max_model_len: 512}
engine: {max_num_batched_tokens: 256, max_num_seqs: 8, async_scheduling: false}
memory: {num_gpu_blocks_override: 200}
step_time: {kind: constant, seconds: 0.01}
workload:
  max_concurrency: 4
  synthetic: {requests: 40, arrival: {kind: all_at_once}, prompt_tokens: 50, output_tokens: 10}
"""


def clients(number: int, think_s: Any = 0) -> Any:
    """So many clients."""
    return open_clients({"max_concurrency": number, "think_s": think_s}, Path(), 0)


def mixed(count: int = 60) -> list[Ask]:
    """Requests with shared beginnings, three priorities and different lengths, some of which come later."""
    return [
        ask(f"r{i}", 400 * max(i - 40, 0), [(7, 8), (100 + i, 4 + i % 9)], 1 + i % 6, priority=i % 3)
        for i in range(count)
    ]


def together(served: Served) -> int:
    """The most requests sent and not yet answered at any time; an answer at t comes before a request at t."""
    sent, answered = served.requests["arrival_s"], served.requests["finish_s"]
    times = np.concatenate([sent, answered])
    change = np.repeat([1, -1], [len(sent), len(answered)])
    return int(np.cumsum(change[np.lexsort((change, times))]).max())


def test_one_client_sends_the_next_request_when_it_has_thought_about_the_answer() -> None:
    asks = [ask(f"r{i}", 0, [(i, 4)], 3) for i in range(4)]
    served = serve(asks, Settings(step_ns=10), clients=clients(1, 7e-9))
    assert (served.requests["arrival_s"] * 1e9).round().tolist() == [0, 37, 74, 111]
    assert (served.requests["finish_s"] * 1e9).round().tolist() == [30, 67, 104, 141]


def test_what_the_answer_takes_outside_the_engine_delays_the_next_request() -> None:
    asks = [ask(f"r{i}", 0, [(i, 4)], 3) for i in range(3)]
    served = serve(asks, Settings(step_ns=10), clients=clients(1), answer_delay_ns=5)
    assert (served.requests["arrival_s"] * 1e9).round().tolist() == [0, 35, 70]


def test_a_request_is_not_sent_before_its_time() -> None:
    asks = [ask("a", 0, [(1, 4)], 3), ask("b", 100, [(2, 4)], 3), ask("c", 101, [(3, 4)], 3)]
    served = serve(asks, Settings(step_ns=10), clients=clients(1))
    assert (served.requests["arrival_s"] * 1e9).round().tolist() == [0, 100, 130]


@pytest.mark.parametrize("number", [1, 3, 8])
def test_never_more_requests_than_clients_are_on_their_way(number: int) -> None:
    served = serve(mixed(), CROWDED, clients=clients(number))
    assert len(served.requests["id"]) == 60
    assert together(served) == number


@pytest.mark.parametrize("number", [1, 3, 8, 200])
@pytest.mark.parametrize("think_s", [0, 1.3e-8, {"kind": "exponential", "mean": 3e-8}])
def test_the_same_requests_at_the_same_times_give_the_same_run_in_an_open_loop(number: int, think_s: Any) -> None:
    closed = serve(mixed(), CROWDED, clients=clients(number, think_s))
    sent = {name: round(at * 1e9) for name, at in zip(closed.requests["id"], closed.requests["arrival_s"], strict=True)}
    opened = serve([replace(request, arrival_ns=sent[request.name]) for request in mixed()], CROWDED)
    assert opened.steps["end_s"].tolist() == closed.steps["end_s"].tolist()
    assert opened.counters == closed.counters
    for name in closed.requests["id"]:
        assert repr(opened.of(name)) == repr(closed.of(name))  # equal to the last bit, NaN included


def test_windows_and_single_steps_change_nothing() -> None:
    whole = serve(mixed(), CROWDED, clients=clients(5, 1e-8))
    for rows, logged in ((1, False), (7, False), (4096, True)):
        other = serve(mixed(), CROWDED, rows=rows, logged=logged, clients=clients(5, 1e-8))
        assert other.counters == whole.counters
        assert repr(other.requests) == repr(whole.requests)


def test_requests_that_vllm_refuses_hold_no_client_up() -> None:
    asks = [ask("a", 0, [(1, 4)], 3), ask("long", 0, [(2, 64)], 1), ask("b", 0, [(3, 4)], 3)]
    served = serve(asks, clients=clients(1))
    assert served.requests["id"] == ["a", "b"]
    assert served.engine.rejected == ["long"]


def talks(number: int = 12) -> RequestBatch:
    """Sessions of up to four turns, one of two parallel calls among them, and single requests in between."""
    asks: list[Ask] = []
    columns: list[tuple[str | None, int, int]] = []
    for i in range(number):
        asks.append(ask(f"s{i}.0", 60 * i, [(i, 6)], 2))
        columns.append((f"s{i}", 0, -1))
        for turn in range(1, 1 + i % 4):
            for call in range(1 + (turn == 2)):
                asks.append(ask(f"s{i}.{turn}.{call}", 60 * i, [(i, 6 + 7 * turn)], 1 + turn + call))
                columns.append((f"s{i}", turn, 5 * turn + 8 * call))
        asks.append(ask(f"x{i}", 60 * i, [(100 + i, 9)], 3))
        columns.append((None, 0, -1))
    return replace(
        batch_of(asks),
        sessions=[session for session, _, _ in columns],
        turn=np.array([turn for _, turn, _ in columns]),
        think_ns=np.array([think for _, _, think in columns]),
    )


@pytest.mark.parametrize("number", [None, 2, 50])
@pytest.mark.parametrize("delay", [0, 3])
def test_a_turn_follows_the_last_answer_of_the_turn_before(number: int | None, delay: int) -> None:
    batch = talks()
    served = serve(batch, clients=clients(number) if number else None, answer_delay_ns=delay)
    assert served.requests["id"] == batch.ids
    sent, answered = ((served.requests[name] * 1e9).round().tolist() for name in ("arrival_s", "finish_s"))
    for row, (session, turn) in enumerate(zip(batch.sessions, batch.turn.tolist(), strict=True)):
        before = [answered[i] for i, s in enumerate(batch.sessions) if s == session and batch.turn[i] == turn - 1]
        if turn:
            assert sent[row] == max(before) + delay + batch.think_ns[row]
        elif number is None:
            assert sent[row] == batch.arrival_ns[row]
        else:
            assert sent[row] >= batch.arrival_ns[row]


def test_sessions_that_wait_give_the_same_run_in_an_open_loop_in_any_window_and_step_by_step() -> None:
    closed = serve(talks(), CROWDED)
    at = np.array((closed.requests["arrival_s"] * 1e9).round(), np.int64)
    order = np.argsort(at, kind="stable")
    alone = np.full(len(at), -1)
    opened = serve(replace(talks(), arrival_ns=at, think_ns=alone).take(order).ranked(), CROWDED)
    assert opened.steps["end_s"].tolist() == closed.steps["end_s"].tolist()
    assert opened.counters == closed.counters
    for rows, logged in ((1, False), (5, True)):
        other = serve(talks(), CROWDED, rows=rows, logged=logged)
        assert repr(other.requests) == repr(closed.requests)


def test_a_turn_that_vllm_refuses_is_passed_over() -> None:
    batch = talks(4)
    long = batch.ids.index("s3.2.1")
    prompt = batch.prompt_tokens.copy()
    prompt[long] = 64
    served = serve(replace(batch, prompt_tokens=prompt))
    assert served.engine.rejected == ["s3.2.1"]
    assert len(served.requests["id"]) == len(batch) - 1


def run(folder: Path, text: str, *sets: str) -> dict[str, Any]:
    """The summary of a scenario."""
    (folder / "case.yaml").write_text(text)
    return run_scenario(load_scenario(folder / "case.yaml", sets)).summary


def test_little_holds_for_busy_clients(tmp_path: Path) -> None:
    summary = run(tmp_path, SCENARIO)
    assert summary["e2e_s"]["mean"] == pytest.approx(0.1)  # 10 steps, whoever else runs
    assert summary["requests_per_s"] * summary["e2e_s"]["mean"] == pytest.approx(4)
    assert summary["peak_running"] == 4


def test_thinking_slows_clients_down_by_littles_law(tmp_path: Path) -> None:
    summary = run(tmp_path, SCENARIO, "workload.think_s=0.3")
    assert summary["makespan_s"] == pytest.approx(10 * 0.1 + 9 * 0.3)


@pytest.mark.parametrize(
    ("sets", "message"),
    [
        (("workload.max_concurrency=0",), "workload.max_concurrency.*greater than or equal to 1"),
        (("workload.max_concurrency=null", "workload.think_s=1"), "workload.think_s.*needs max_concurrency"),
        (("workload.think_s=-1",), "workload.think_s.*-1"),
        (("workload.think_s={kind: expo}",), "workload.think_s.*exponential"),
        (("workload.concurrency=4",), "nearest is 'max_concurrency'"),
        (("engine.data_parallel_size=2",), "workload.max_concurrency.*data_parallel_size"),
    ],
)
def test_bad_clients_get_one_line(tmp_path: Path, sets: tuple[str, ...], message: str) -> None:
    with pytest.raises((InputError, WorkloadError), match=message):
        run(tmp_path, SCENARIO, *sets)
