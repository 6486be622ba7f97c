"""Replicas: requests dealt out in turn, nothing shared, counts that add up, one alone as if there were no others."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sim.engine_config import EngineConfig
from sim.errors import InputError
from sim.models import load_model
from sim.planning import Memory, plan_kv_cache
from sim.report.run_tables import run_tables
from sim.run import Result, run_scenario
from sim.scenario import Scenario, load_scenario

SCENARIO = """
model: {layers: [{kind: full, count: 2}], num_kv_heads: 1, head_size: 64, max_model_len: 512}
engine: {max_num_batched_tokens: 256, max_num_seqs: 8, data_parallel_size: %d}
memory: {num_gpu_blocks_override: 80}
step_time: {kind: constant, seconds: 0.01}
workload: {trace: trace.jsonl}
"""


def rows(start: int, count: int, every: int = 1) -> str:
    """Requests that begin alike, one every 20 ms."""
    return "".join(
        json.dumps(
            {
                "id": f"r{i}",
                "arrival_s": 0.02 * i,
                "prompt": [["all say", 64], [f"own {i}", 40 + i % 7]],
                "output_tokens": 5 + i % 3,
            }
        )
        + "\n"
        for i in range(start, count, every)
    )


def scenario(folder: Path, replicas: int, trace: str) -> Scenario:
    """A scenario with so many replicas on a trace."""
    folder.mkdir(exist_ok=True)
    (folder / "case.yaml").write_text(SCENARIO % replicas)
    (folder / "trace.jsonl").write_text(trace)
    return load_scenario(folder / "case.yaml")


def without_replica(columns: dict[str, Any], replica: int) -> dict[str, list[Any]]:
    """The rows of one replica as they would be if it had run alone."""
    mine = [index for index, owner in enumerate(columns["replica"]) if owner == replica]
    return {name: [values[i] for i in mine] for name, values in columns.items() if name != "replica"}


def test_each_replica_runs_as_it_would_alone_on_every_third_request(tmp_path: Path) -> None:
    together = run_scenario(scenario(tmp_path / "all", 3, rows(0, 20)), check=True)
    for replica in range(3):
        alone = run_scenario(scenario(tmp_path / f"r{replica}", 1, rows(replica, 20, 3)))
        for ours, theirs in ((together.requests, alone.requests), (together.steps, alone.steps)):
            own = without_replica(ours, replica)
            assert all(np.array_equal(own[name], theirs[name]) for name in theirs), replica
        own = together.summary["replicas"][replica]
        assert {key: value for key, value in own.items() if not key.startswith("mean_")} == {
            key: alone.summary[key] for key in own if not key.startswith("mean_")
        }
        means = {key: value for key, value in own.items() if key.startswith("mean_")}
        assert means == pytest.approx({key: alone.summary[key] for key in means}, rel=1e-12)


def test_counts_add_up_and_peaks_are_the_highest(tmp_path: Path) -> None:
    summary = run_scenario(scenario(tmp_path, 2, rows(0, 15))).summary
    parts = summary["replicas"]
    assert [part["finished"] for part in parts] == [8, 7]
    for key in ("requests", "finished", "steps", "output_tokens", "prefix_cache_hit_tokens", "evicted_blocks"):
        assert summary[key] == sum(part[key] for part in parts), key
    assert summary["peak_used_blocks"] == max(part["peak_used_blocks"] for part in parts)
    assert summary["makespan_s"] == summary["last_finish_s"] - min(part["first_arrival_s"] for part in parts)
    assert summary["num_blocks"] == 80


def test_a_prefix_is_cached_on_each_replica_by_itself(tmp_path: Path) -> None:
    """64 common tokens: every request but the first of each replica hits them."""
    for replicas in (1, 2, 4):
        summary = run_scenario(scenario(tmp_path, replicas, rows(0, 12))).summary
        assert summary["prefix_cache_hit_tokens"] == 64 * (12 - replicas)


def test_a_replica_without_requests_does_nothing(tmp_path: Path) -> None:
    result = run_scenario(scenario(tmp_path, 4, rows(0, 3)))
    assert [part["finished"] for part in result.summary["replicas"]] == [1, 1, 1, 0]
    assert result.summary["finished"] == 3


def test_lines_of_the_logs_name_their_replica(tmp_path: Path) -> None:
    steps, events = io.StringIO(), io.StringIO()
    result = run_scenario(scenario(tmp_path, 2, rows(0, 6)), step_log=steps, kv_events=events)
    entries = [json.loads(line) for line in steps.getvalue().splitlines()]
    assert [entry["replica"] for entry in entries] == sorted(entry["replica"] for entry in entries)
    assert sum("step" in entry for entry in entries) == result.summary["steps"]
    assert {json.loads(line)["replica"] for line in events.getvalue().splitlines()} == {0, 1}


def test_the_answer_has_a_line_per_replica(tmp_path: Path) -> None:
    given = scenario(tmp_path, 2, rows(0, 15))
    result: Result = run_scenario(given)
    _, replicas, _ = run_tables(given, result, "here")
    assert [row[:2] for row in replicas.rows] == [("0", "8"), ("1", "7")]


def test_replicas_that_hold_prefill_back_together_are_refused() -> None:
    """vLLM's coordinator does that for models with experts."""
    flags: dict[str, Any] = {
        "max_model_len": 4096,
        "max_num_batched_tokens": 4096,
        "max_num_seqs": 8,
        "prefill_schedule_interval": 4,
    }
    engine = EngineConfig(**flags, data_parallel_size=2)
    memory = Memory(available_kv_cache_memory_gib=40)
    assert plan_kv_cache(load_model("llama-3.1-8b"), engine, memory).num_blocks > 0
    with pytest.raises(InputError, match="hold prefill back together"):
        plan_kv_cache(load_model("gpt-oss-120b"), engine, memory)
