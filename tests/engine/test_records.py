"""What is kept of a run: columns of requests and steps, thinned steps, means and percentiles."""

from __future__ import annotations

import math

import numpy as np
import pytest

from sim import records as records_module
from sim.core.make_state import make_state
from sim.core.output import S_END, S_RUNNING, S_START, S_STEP, S_USED, STEP_FIELDS, STEP_ROWS, Output
from sim.measure import distribution
from sim.records import Records
from tests.engine.serving import Served, batch_of, cut, serve
from tests.twin.ours import make_machine
from tests.twin.settings import Settings, ask

NS = 1e-9


@pytest.fixture(scope="module")
def served() -> Served:
    """Steps of 10: a is preempted for b's sake, c hits a's prefix, d stops early, e meets the end of the model."""
    return serve(
        [
            ask("a", 0, [(1, 8)], 8),
            ask("b", 0, [(2, 8)], 8),
            ask("c", 500, [(1, 8), (3, 1)], 1, priority=4),
            ask("d", 600, [(4, 3)], 2, max_tokens=9),
            ask("e", 700, [(5, 18)], 9),
        ],
        Settings(num_blocks=7, max_model_len=20),
    )


def test_one_row_a_request_in_order_of_the_trace(served: Served) -> None:
    assert served.requests["id"] == ["a", "b", "c", "d", "e"]
    assert served.requests["prompt_tokens"].tolist() == [8, 8, 9, 3, 18]
    assert served.requests["output_tokens"].tolist() == [8, 8, 1, 2, 2]
    assert served.requests["priority"].tolist() == [0, 0, 4, 0, 0]
    assert served.requests["session"] == [None] * 5


def test_how_requests_end(served: Served) -> None:
    assert served.requests["finish_reason"] == ["length", "length", "length", "stop", "truncated"]


def test_cached_tokens_are_those_of_the_first_admission(served: Served) -> None:
    """b comes back to 8 cached tokens of its own, which does not count; c finds a's prompt."""
    assert served.requests["cached_tokens"].tolist() == [0, 0, 8, 0, 0]
    assert served.requests["preemptions"].tolist() == [0, 1, 0, 0, 0]


def test_times_of_a_preempted_request(served: Served) -> None:
    """b: token 1 at 10, preempted in step 6, back in step 9, token 8 at 110."""
    found = served.of("b")
    times = {key: found[key] / NS for key in ("first_scheduled_s", "first_token_s", "finish_s", "ttft_s", "e2e_s")}
    assert times == pytest.approx(
        {"first_scheduled_s": 0, "first_token_s": 10, "finish_s": 110, "ttft_s": 10, "e2e_s": 110}
    )
    assert found["tpot_s"] == pytest.approx(100 / 7 * NS)


def test_a_single_output_has_no_time_per_output_token(served: Served) -> None:
    assert math.isnan(served.of("c")["tpot_s"])


def test_a_delay_outside_the_engine_moves_what_the_client_sees(served: Served) -> None:
    """And nothing else: neither queueing nor the time per output token."""
    engine = served.engine
    later = engine.records.request_columns(engine.ids, engine.sessions, 1000)
    for column in ("first_token_s", "finish_s", "ttft_s", "e2e_s"):
        assert later[column] - served.requests[column] == pytest.approx([1000 * NS] * 5)
    for column in ("queue_s", "tpot_s", "first_scheduled_s"):
        assert later[column] == pytest.approx(served.requests[column], nan_ok=True)


def test_one_row_a_step(served: Served) -> None:
    steps = served.steps
    assert steps["step"].tolist() == list(range(1, 17))
    assert steps["scheduled_tokens"].tolist() == [16, 2, 2, 2, 2, 1, 1, 1, 5, 1, 1, 1, 3, 1, 18, 1]
    assert steps["prefill_tokens"].tolist() == [16, 0, 0, 0, 0, 0, 0, 0, 5, 0, 0, 1, 3, 0, 18, 0]
    assert steps["decode_tokens"].tolist() == [0, 2, 2, 2, 2, 1, 1, 1, 0, 1, 1, 0, 0, 1, 0, 1]
    assert steps["preempted_requests"].tolist() == [0] * 5 + [1] + [0] * 10
    assert steps["admitted_requests"].tolist() == [2, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 1, 1, 0, 1, 0]
    assert steps["hit_tokens"].tolist() == [0] * 8 + [8, 0, 0, 8] + [0] * 4
    assert steps["running_requests"].tolist() == [2] * 5 + [1] * 11
    assert steps["waiting_requests"].tolist() == [0] * 5 + [1, 1, 1] + [0] * 8
    assert steps["used_blocks"].tolist()[:9] == [4, 6, 6, 6, 6, 4, 4, 4, 4]
    assert (steps["end_s"] - steps["start_s"]).tolist() == pytest.approx([10 * NS] * 16)


def test_busy_time_and_means_over_it(served: Served) -> None:
    records = served.engine.records
    assert records.busy_s == pytest.approx(160 * NS)
    assert records.running_seconds == pytest.approx((2 * 5 + 11) * 10 * NS)
    assert records.used_block_seconds == pytest.approx(float(served.steps["used_blocks"].sum()) * 10 * NS)


def output_with(first: int, count: int) -> Output:
    """A machine's buffers holding steps first … first+count-1, each 2 ns long, with 3 running and 5 blocks used."""
    settings = Settings()
    output = make_state(make_machine(settings).plan, settings.num_blocks, records=count).output
    rows = np.zeros((count, STEP_FIELDS), np.int64)
    rows[:, S_STEP] = np.arange(first, first + count)
    rows[:, S_START] = 2 * rows[:, S_STEP]
    rows[:, S_END] = rows[:, S_START] + 2
    rows[:, [S_RUNNING, S_USED]] = 3, 5
    output.steps[:count] = rows
    output.counters[STEP_ROWS] = count
    return output


def test_steps_of_a_very_long_run_are_thinned_evenly(monkeypatch: pytest.MonkeyPatch) -> None:
    """Room for 16: after 16 every second one, after 32 every fourth, …; totals still count all."""
    monkeypatch.setattr(records_module, "MAX_STEP_ROWS", 16)
    records = Records()
    strides = []
    for first in range(1, 129, 8):
        records.drain(output_with(first, 8))
        strides.append(records.stride)
        kept = records.step_columns()["step"].tolist()
        assert kept == list(range(1, first + 8, records.stride))
        assert len(kept) <= 16
    assert strides[-1] == 8
    assert records.busy_s == pytest.approx(256 * NS)
    assert records.running_seconds == pytest.approx(3 * 256 * NS)
    assert records.used_block_seconds == pytest.approx(5 * 256 * NS)


def test_a_long_run_keeps_the_same_steps_however_it_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(records_module, "MAX_STEP_ROWS", 16)
    asks = [ask(f"r{i}", 35 * i, [(i, 3)], 6) for i in range(20)]
    found = []
    for rows in (1, 4):
        run = serve(asks, rows=rows)
        found.append((run.engine.records.stride, run.steps["step"].tolist(), run.engine.records.busy_s))
    assert found[0][:2] == found[1][:2]
    assert found[0][2] == pytest.approx(found[1][2])


def test_drained_buffers_are_empty_and_copied() -> None:
    output = output_with(1, 8)
    records = Records()
    records.drain(output)
    assert int(output.counters[STEP_ROWS]) == 0
    output.steps[:] = 99
    assert records.step_columns()["step"].tolist() == list(range(1, 9))


def test_percentiles_are_linear_and_leave_out_what_is_no_number() -> None:
    values = np.array([4.0, 1.0, np.nan, 3.0, 2.0])
    assert distribution(values) == {
        "mean": 2.5,
        "p50": 2.5,
        "p90": pytest.approx(3.7),
        "p99": pytest.approx(3.97),
    }


def test_no_numbers_have_no_distribution() -> None:
    nothing = {"mean": None, "p50": None, "p90": None, "p99": None}
    assert distribution(np.array([])) == nothing
    assert distribution(np.array([np.nan, np.nan])) == nothing


def test_one_number_is_all_percentiles() -> None:
    assert distribution(np.array([3.0])) == {"mean": 3.0, "p50": 3.0, "p90": 3.0, "p99": 3.0}


def test_windows_keep_together_who_arrives_together() -> None:
    """What the engine's windows have to guarantee for ties by id."""
    batch = batch_of([ask("a", 0), ask("b", 5), ask("c", 5), ask("d", 5), ask("e", 9)])
    assert [part.ids for part in cut(batch, 1)] == [["a"], ["b", "c", "d"], ["e"]]
    assert [part.ids for part in cut(batch, 2)] == [["a", "b", "c", "d"], ["e"]]
