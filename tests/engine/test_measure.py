"""What is measured of a run: whole requests by when they were sent, rates by when they finish."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from sim.cli import main
from sim.errors import InputError
from sim.measure import Measure, WarmStart
from sim.run import Result, run_scenario
from sim.scenario import dump_yaml, load_scenario
from sim.search import parse_targets

SCENARIO = """
model: {layers: [{kind: full, count: 2}], num_kv_heads: 1, head_size: 64, max_model_len: 512}
engine: {max_num_batched_tokens: 256, max_num_seqs: 8, async_scheduling: false}
memory: {num_gpu_blocks_override: 200}
step_time: {kind: constant, seconds: 0.01}
workload:
  max_concurrency: 16
  synthetic: {requests: 160, arrival: {kind: all_at_once}, prompt_tokens: 50, output_tokens: 10}
"""


def run(folder: Path, *sets: str) -> Result:
    """A closed loop in which twice as many clients as may run begin together."""
    (folder / "case.yaml").write_text(SCENARIO)
    return run_scenario(load_scenario(folder / "case.yaml", sets))


def test_only_requests_sent_in_time_are_measured(tmp_path: Path) -> None:
    result = run(tmp_path, "measure.after_s=0.3", "measure.until_s=1.2")
    sent, ttft = result.requests["arrival_s"], result.requests["ttft_s"]
    inside = (sent >= 0.3) & (sent < 1.2)
    assert 0 < inside.sum() < len(sent)
    assert result.summary["ttft_s"]["mean"] == pytest.approx(ttft[inside].mean())
    assert result.summary["ttft_s"]["p99"] == pytest.approx(np.percentile(ttft[inside], 99))
    measured = result.summary["measured"]
    assert (measured["after_s"], measured["until_s"], measured["requests"]) == (0.3, 1.2, int(inside.sum()))


def test_rates_are_those_of_the_time_measured(tmp_path: Path) -> None:
    """Eight places, ten steps of 10 ms each: 80 requests a second once everybody is busy, and less over all."""
    whole, part = run(tmp_path).summary, run(tmp_path, "measure.after_s=0.4", "measure.until_s=1.6").summary
    assert part["requests_per_s"] == pytest.approx(80, rel=0.05)
    assert part["output_tokens_per_s"] == pytest.approx(800, rel=0.05)
    assert whole["requests_per_s"] == pytest.approx(160 / whole["makespan_s"])
    assert "measured" not in whole


def test_counts_stay_those_of_the_whole_run(tmp_path: Path) -> None:
    whole, part = run(tmp_path).summary, run(tmp_path, "measure.after_s=0.4").summary
    for name in ("finished", "steps", "output_tokens", "prefix_cache_hit_tokens", "peak_used_blocks"):
        assert part[name] == whole[name]


def test_nothing_measured_is_no_number(tmp_path: Path) -> None:
    assert run(tmp_path, "measure.after_s=1e6").summary["ttft_s"]["p50"] is None


@pytest.mark.parametrize(
    ("sets", "message"),
    [
        (("measure.after_s=-1",), "measure.after_s.*greater than or equal to 0"),
        (("measure.after_s=2", "measure.until_s=2"), "measure.until_s.*more than after_s"),
        (("measure.from_s=2",), "unknown key"),
        (("measure.warm_start.requests=0",), "measure.warm_start.requests.*greater than or equal to 1"),
        (("measure.warm_start.seconds=3",), "unknown key"),
    ],
)
def test_a_bad_interval_gets_one_line(tmp_path: Path, sets: tuple[str, ...], message: str) -> None:
    with pytest.raises(InputError, match=message):
        run(tmp_path, *sets)


WARM = "measure.warm_start.requests=60"


def test_a_warm_start_measures_from_the_request_after_it(tmp_path: Path) -> None:
    whole, warm = run(tmp_path), run(tmp_path, WARM)
    moment = np.sort(whole.requests["arrival_s"])[60]
    seconds = run(tmp_path, f"measure.after_s={moment}")
    assert warm.summary == seconds.summary
    assert warm.summary["measured"]["after_s"] == moment
    assert warm.requests["ttft_s"].tolist() == whole.requests["ttft_s"].tolist()  # served all the same


def test_a_warm_start_leaves_the_cold_cache_out(tmp_path: Path) -> None:
    """Every prompt begins with one of four texts: only the first request of each misses it."""
    shared = (
        "workload.max_concurrency=1",
        "workload.synthetic.shared_prefix={pools: 4, tokens: 32}",
        "measure.warm_start.requests=40",
    )
    summary = run(tmp_path, *shared).summary
    warm = summary["measured"]["prefix_cache_hit_rate"]
    assert warm == pytest.approx(32 / 82, abs=0.001)
    assert summary["prefix_cache_hit_rate"] < warm
    assert run(tmp_path, *shared[:2]).summary["prefix_cache_hit_rate"] == summary["prefix_cache_hit_rate"]
    target = parse_targets("prefix_cache_hit_rate>0")[0]
    assert target.value({}, summary, Measure()) == warm


def test_a_warm_start_of_everything_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"measure.warm_start.requests: got 160 .* none is left to measure"):
        run(tmp_path, "measure.warm_start.requests=160")


def test_a_warm_start_is_loaded_again_as_it_was(tmp_path: Path) -> None:
    (tmp_path / "case.yaml").write_text(SCENARIO)
    scenario = load_scenario(tmp_path / "case.yaml", [WARM])
    (tmp_path / "again.yaml").write_text(dump_yaml(scenario.resolved()))
    assert load_scenario(tmp_path / "again.yaml").measure == scenario.measure == Measure(warm_start=WarmStart(60))


def test_every_command_shows_what_was_measured(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "case.yaml").write_text(SCENARIO)
    (tmp_path / "many.yaml").write_text("scenario: case.yaml\ngrid: {engine.max_num_seqs: [4, 8]}\n")
    shown = {
        "run": "requests sent, 0.0 % of their prompt tokens hit, 0 preemptions",
        "compare": "requests measured",
        "sweep": "measured.prefix_cache_hit_rate",
    }
    for command, text in shown.items():
        file = "many.yaml" if command == "sweep" else "case.yaml"
        quiet = [] if command == "sweep" else ["--no-figures"]
        assert main([command, str(tmp_path / file), f"--set={WARM}", f"--out={tmp_path / command}", *quiet]) == 0
        assert text in capsys.readouterr().out
