"""The same input gives the same bytes: twice, in another process, in other windows, watched or not."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sim.run import Result, run_scenario
from sim.scenario import load_scenario
from tests.engine.serving import Served, serve
from tests.twin.drawn import seeded_case

SEEDS = range(400, 412)

SCENARIO = """
name: twice
model:
  layers: [{kind: full, count: 2}, {kind: sliding_window, count: 4, window: 48}]
  num_kv_heads: 2
  head_size: 16
  dtype: bfloat16
  max_model_len: 512
engine: {max_num_batched_tokens: 256, max_num_seqs: 8, block_size: 16}
memory: {num_gpu_blocks_override: 160}
step_time: {kind: constant, seconds: 0.01}
workload:
  synthetic:
    requests: 150
    arrival: {kind: poisson, rate_per_s: 12}
    shared_prefix: {pools: 3, tokens: 60, zipf: 1.0}
    prompt_tokens: {kind: lognormal, median: 120, sigma: 0.8, max: 400}
    output_tokens: 30
seed: 7
"""


def values(columns: dict[str, Any]) -> dict[str, list[Any]]:
    """Columns as lists that compare equal when not-a-number meets itself."""
    return {
        name: [repr(v) for v in (column.tolist() if isinstance(column, np.ndarray) else column)]
        for name, column in columns.items()
    }


def everything(served: Served) -> tuple[Any, ...]:
    """All that a run leaves behind, its log aside."""
    machine = served.machine
    return (
        values(served.requests),
        values(served.steps),
        served.counters,
        machine.free_queue().tolist(),
        machine.state.pool.key.tolist(),
        served.engine.rejected,
        served.engine.first_arrival_ns,
    )


@pytest.mark.parametrize("seed", SEEDS)
def test_windows_of_a_trace_make_no_difference(seed: int) -> None:
    """One request at a time, three, or all at once."""
    settings, asks = seeded_case(seed, plain=True)
    expected = everything(serve(asks, settings))
    for rows in (1, 3):
        assert everything(serve(asks, settings, rows=rows)) == expected


@pytest.mark.parametrize("seed", SEEDS)
def test_watching_every_step_makes_no_difference(seed: int) -> None:
    """A log is written a step at a time; windows of one besides."""
    settings, asks = seeded_case(seed, plain=True)
    unwatched = serve(asks, settings)
    watched = serve(asks, settings, logged=True)
    assert everything(watched) == everything(unwatched)
    apart = serve(asks, settings, logged=True, rows=1)
    assert (apart.log, everything(apart)) == (watched.log, everything(watched))


def run(path: Path) -> tuple[str, str]:
    """Summary and step log of a scenario, as text."""
    log = io.StringIO()
    result: Result = run_scenario(load_scenario(path), step_log=log)
    return json.dumps(result.summary), log.getvalue()


@pytest.fixture
def scenario(tmp_path: Path) -> Path:
    """A scenario file with generated traffic."""
    path = tmp_path / "twice.yaml"
    path.write_text(SCENARIO, encoding="utf-8")
    return path


def test_two_runs_give_the_same_bytes(scenario: Path) -> None:
    first = run(scenario)
    assert first == run(scenario)
    assert json.loads(first[0])["finished"] == 150


def test_another_process_gives_the_same_bytes(scenario: Path) -> None:
    """With another seed of Python's own hashes, and another order of sets and dictionaries of strings with it."""
    program = (
        "import io, json, sys; from sim.run import run_scenario; from sim.scenario import load_scenario\n"
        "log = io.StringIO(); result = run_scenario(load_scenario(sys.argv[1]), step_log=log)\n"
        "sys.stdout.buffer.write((json.dumps(result.summary) + '|' + log.getvalue()).encode())"
    )
    found = []
    for hash_seed in ("1", "2"):
        done = subprocess.run(
            [sys.executable, "-c", program, str(scenario)],
            env={**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
            capture_output=True,
            check=True,
        )
        found.append(done.stdout)
    assert found[0] == found[1] == "|".join(run(scenario)).encode()


def test_a_log_changes_nothing_in_the_summary(scenario: Path) -> None:
    silent = run_scenario(load_scenario(scenario), check=True)
    assert json.dumps(silent.summary) == run(scenario)[0]


def test_another_seed_is_another_run(scenario: Path) -> None:
    other = run_scenario(load_scenario(scenario, ["seed=8"]))
    assert json.dumps(other.summary) != run(scenario)[0]
