"""The search for a limit: targets, bracketing, and whether a run kept up with its load."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sim.cli import main
from sim.errors import InputError
from sim.load import BACKLOGGED, OVERLOADED, SHORT, STABLE, load_of
from sim.measure import Measure
from sim.report.capacity_tables import SHORT_LIMIT
from sim.run import run_scenario
from sim.scenario import load_scenario
from sim.search import Probe, find_limit, parse_targets

SCENARIO = """
model: {layers: [{kind: full, count: 2}], num_kv_heads: 1, head_size: 64, max_model_len: 512}
engine: {max_num_batched_tokens: 64, max_num_seqs: 1, async_scheduling: false, enable_prefix_caching: false}
memory: {num_gpu_blocks_override: 80}
step_time: {kind: constant, seconds: 0.01}
workload:
  synthetic:
    requests: 2000
    arrival: {kind: poisson, rate_per_s: 1}
    prompt_tokens: 50
    output_tokens: 10
variants: {one: {engine.max_num_seqs: 1}, two: {engine.max_num_seqs: 2}}
"""
"""One place, ten steps of 10 ms for each request: with one place, M/D/1 with a service of 0.1 s."""


def case(folder: Path) -> str:
    """The scenario as a file."""
    (folder / "case.yaml").write_text(SCENARIO)
    return str(folder / "case.yaml")


def load(folder: Path, *sets: str) -> dict[str, Any]:
    """How a run of it kept up."""
    result = run_scenario(load_scenario(case(folder), sets))
    return load_of(result.requests, Measure(), 0.01)


def probe(limit: float, least: float = 0.0) -> Any:
    """Runs that pass from ``least`` to below ``limit``."""
    return lambda value: Probe(value, (value,), least <= value < limit, STABLE)


@pytest.mark.parametrize("limit", [0.03, 0.9, 1.0001, 5.3, 700.0])
def test_the_largest_load_is_found_to_two_per_cent(limit: float) -> None:
    found, probes = find_limit(probe(limit), 1.0, most=True, whole=False)
    assert found is not None
    assert limit / 1.021 < found < limit
    assert len(probes) < 24
    assert len({p.value for p in probes}) == len(probes)


@pytest.mark.parametrize(("least", "expected"), [(1, 1), (3, 3), (4, 4), (37, 37)])
def test_the_smallest_whole_number_is_exact(least: int, expected: int) -> None:
    assert find_limit(probe(np.inf, least), 8, most=False, whole=True)[0] == expected


@pytest.mark.parametrize(("limit", "expected"), [(1.5, 1), (8, 7), (100, 99)])
def test_the_largest_whole_number_is_exact(limit: float, expected: int) -> None:
    assert find_limit(probe(limit), 3, most=True, whole=True)[0] == expected


def test_nothing_passes() -> None:
    assert find_limit(probe(0.0), 1.0, most=True, whole=False)[0] is None
    assert find_limit(probe(0.0), 4.0, most=True, whole=True)[0] is None


def test_a_run_that_only_looks_good_since_it_ended_does_not_pass() -> None:
    run = Probe(1.0, (0.1,), True, OVERLOADED)
    assert not run.passes
    assert run.looks_good_because_it_ended


def test_targets_are_held_against_measured_requests() -> None:
    requests = {"arrival_s": np.array([0.0, 1.0, 2.0]), "ttft_s": np.array([9.0, 1.0, 3.0])}
    mean, worst = parse_targets("ttft_s.mean < 2, ttft_s.max<=3")
    assert mean.value(requests, {}, Measure(1.0)) == 2.0
    assert not mean.met(2.0)
    assert worst.met(worst.value(requests, {}, Measure(1.0)))
    (hits,) = parse_targets("prefix_cache_hit_rate>=0.5")
    assert hits.value(requests, {"prefix_cache_hit_rate": None}, Measure()) is None
    assert not hits.met(None)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "gives no target"),
        ("ttft_s.p99", "cannot read"),
        ("ttft.p99<1", "unknown metric 'ttft'.*nearest is 'ttft_s'"),
        ("ttft_s<1", "alone are allowed"),
        ("ttft_s.p99<1e", "no number"),
        ("preemptions.p99<1", "with .p99 are allowed"),
    ],
)
def test_bad_targets_get_one_line(text: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        parse_targets(text)


@pytest.mark.parametrize(("rate", "verdict"), [(2, STABLE), (7, STABLE), (11, OVERLOADED), (20, OVERLOADED)])
def test_one_server_is_overloaded_from_its_service_rate_on(tmp_path: Path, rate: float, verdict: str) -> None:
    found = load(tmp_path, f"workload.synthetic.arrival.rate_per_s={rate}")
    assert found["verdict"] == verdict
    if rate > 10:  # of the arrivals, what exceeds ten a second stays behind
        assert found["growth"] == pytest.approx(1 - 10 / rate, abs=0.05)


def test_clients_that_wait_for_a_place_are_backlogged_but_never_overload(tmp_path: Path) -> None:
    found = load(tmp_path, "workload.synthetic.arrival={kind: all_at_once}", "workload.max_concurrency=5")
    assert found["verdict"] == BACKLOGGED
    assert found["waiting"] == pytest.approx(4, rel=0.05)


def test_few_requests_tell_nothing(tmp_path: Path) -> None:
    assert load(tmp_path, "workload.synthetic.requests=40")["verdict"] == SHORT


def capacity(folder: Path, capsys: pytest.CaptureFixture[str], *arguments: str) -> Any:
    """What ``capacity`` says, as JSON."""
    out = str(folder / "out")
    code = main(["capacity", case(folder), "--json", "--workers", "1", "--seeds", "2", "--out", out, *arguments])
    said = capsys.readouterr()
    assert code == 0, said.err
    return json.loads(said.out)


def test_the_largest_rate_of_one_server_is_that_of_theory(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """M/D/1: the mean wait is ρ/(2(1-ρ)) services; 0.1 s of it, besides one step, at ρ = 2/3: 6.7 a second."""
    data = capacity(tmp_path, capsys, "--slo", "queue_s.mean<0.1")
    one, two = data["variants"]["one"], data["variants"]["two"]
    assert one["limit"] == pytest.approx(20 / 3, rel=0.08)
    assert one["limit.lowest"] <= one["limit"] <= one["limit.highest"]
    assert two["limit"] > 1.9 * one["limit"]
    assert (tmp_path / "out" / "figures" / "capacity.png").stat().st_size > 10_000
    assert json.loads((tmp_path / "out" / "capacity.json").read_text()) == data


def test_an_overloaded_run_is_not_taken_for_good(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A target as loose as the run is long is met by any rate; the limit is where the server stops keeping up."""
    data = capacity(tmp_path, capsys, "--slo", "queue_s.p99<1000")
    assert data["variants"]["one"]["limit"] == pytest.approx(10, rel=0.1)
    assert any(p["met"] and p["verdict"] == OVERLOADED for p in data["variants"]["one"]["probes"])


def test_clients_memory_and_replicas_are_searched_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    clients = capacity(tmp_path, capsys, "--slo", "e2e_s.mean<0.45", "--over", "concurrency")
    assert clients["variants"]["one"]["limit"] == 4  # with n clients each waits for n services
    rate = "workload.synthetic.arrival.rate_per_s=25"
    replicas = capacity(tmp_path, capsys, "--slo", "queue_s.mean<0.5", "--over", "gpus", "--set", rate)
    assert replicas["variants"]["one"]["limit"] == 3
    rate = rate.replace("25", "15")
    memory = capacity(tmp_path, capsys, "--slo", "preemptions<1", "--over", "memory", "--set", rate)
    assert 31.5 <= memory["variants"]["two"]["limit"] < 36  # vLLM wants room for one request of full length


def test_a_search_over_something_else_gets_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["capacity", case(tmp_path), "--slo", "ttft_s.p99<1", "--over", "gpu"]) == 2
    assert "nearest is 'gpus'" in capsys.readouterr().err


FEW = ("--set", "workload.synthetic.requests=60")


def test_a_run_too_short_to_tell_is_made_longer(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Sixty requests tell nothing of twice the rate that one server keeps up with, many times as many do."""
    data = capacity(tmp_path, capsys, "--slo", "queue_s.p99<1000", *FEW)
    one = data["variants"]["one"]
    assert one["limit"] == pytest.approx(10, rel=0.2)
    assert max(p["lengthened"] for p in one["probes"]) > 1
    assert all(p["lengthened"] == 1 for p in one["probes"] if not p["met"])


def test_a_limit_that_rests_on_a_run_too_short_to_tell_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A trace has no more requests than it has."""
    rows = [{"id": f"r{i}", "arrival_s": 0.2 * i, "prompt": [[f"own {i}", 50]], "output_tokens": 10} for i in range(40)]
    (tmp_path / "few.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    short = SCENARIO[: SCENARIO.index("workload:")] + "workload: {trace: few.jsonl}\n"
    (tmp_path / "short.yaml").write_text(short)
    (tmp_path / "many.yaml").write_text(
        'scenario: short.yaml\nslo: "ttft_s.p99<1"\ngrid: {engine.max_num_seqs: [1, 2]}\n'
    )
    command = ["capacity", str(tmp_path / "short.yaml"), "--slo", "ttft_s.p99<1", "--out", str(tmp_path / "out")]
    assert main([*command, "--workers", "1"]) == 0
    assert f"hybrid: {SHORT_LIMIT}" in " ".join(capsys.readouterr().out.split())
    assert json.loads((tmp_path / "out" / "capacity.json").read_text())["variants"]["hybrid"]["limit.verdict"] == SHORT
    assert main(["sweep", str(tmp_path / "many.yaml"), "--out", str(tmp_path / "many"), "--workers", "1"]) == 0
    assert f"point 0, 1: {SHORT_LIMIT}" in " ".join(capsys.readouterr().out.split())
