"""What is measured of a run: whole requests by when they were sent, rates by when they finish."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from sim.errors import InputError
from sim.run import Result, run_scenario
from sim.scenario import load_scenario

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
    assert result.summary["measured"] == {"after_s": 0.3, "until_s": 1.2, "requests": int(inside.sum())}


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
    ],
)
def test_a_bad_interval_gets_one_line(tmp_path: Path, sets: tuple[str, ...], message: str) -> None:
    with pytest.raises(InputError, match=message):
        run(tmp_path, *sets)
