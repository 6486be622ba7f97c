"""Every shipped sweep asks, expects, runs all of its points, and answers as its ``expected`` says."""

from __future__ import annotations

import functools
from typing import Any

import pytest

from sim.sweeps import here, read_sweep
from sim.sweeps.spec import shipped_sweeps


@functools.cache
def ran(name: str) -> list[dict[str, Any]]:
    """The numbers of each point of a shipped sweep; all must have run."""
    rows = [row for _, row in here(read_sweep(name).points)]
    assert [row["error"] for row in rows] == [None] * len(rows)
    return [row["values"] for row in rows]


def column(name: str, of: str) -> list[float]:
    """One number of every point."""
    return [values[of] for values in ran(name)]


def test_there_are_six() -> None:
    assert len(shipped_sweeps()) >= 6


@pytest.mark.parametrize("name", shipped_sweeps())
def test_a_sweep_asks_and_expects(name: str) -> None:
    sweep = read_sweep(name)
    assert sweep.name == name
    assert sweep.question.endswith("?")
    assert f"hybridkv sweep {name}" in sweep.expected


def test_batched_tokens() -> None:
    least, *middle, most = column("batched-tokens", "limit")
    assert all(2.2 < limit < 2.4 for limit in middle)
    assert least < 0.87 * max(middle)
    assert most == pytest.approx(max(middle), rel=0.02)


def test_retention_interval() -> None:
    hits, evicted = (column("retention-interval", name) for name in ("prefix_cache_hit_rate", "evicted_blocks"))
    assert max(hits) == hits[4] == pytest.approx(0.73, abs=0.01)
    assert evicted[4] < 0.4 * evicted[0]
    assert min(evicted) == evicted[1]
    assert hits[0] == hits[2]


def test_block_size_and_match_unit() -> None:
    assert all(0.66 <= round(hit, 2) <= 0.68 for hit in column("block-size", "prefix_cache_hit_rate"))
    assert not any(column("block-size", "preemptions"))
    assert all(0.69 < hit < 0.71 for hit in column("prefix-match-unit", "prefix_cache_hit_rate"))


def test_tensor_or_data_parallel() -> None:
    one, two, four = column("tensor-or-data-parallel", "tpot_s.p90")
    assert two < min(one, four)
    first = column("tensor-or-data-parallel", "ttft_s.p99")
    assert first[2] > 1.3 * max(first[:2])


def test_memory_budget() -> None:
    hits, bounds, endless = (
        column("memory-budget", f"{name}_hit_rate") for name in ("prefix_cache", "belady", "endless")
    )
    assert all(hit <= bound <= most for hit, bound, most in zip(hits, bounds, endless, strict=True))
    assert set(endless) == {endless[0]}
    assert endless[0] == pytest.approx(0.815, abs=0.005)
    hybrid, full = hits[:8], hits[8:]
    assert hybrid[6] == hybrid[7] == pytest.approx(0.725, abs=0.005)
    assert hybrid == sorted(hybrid)
    assert bounds[1:8] == [endless[0]] * 7
    assert bounds[8] == pytest.approx(0.49, abs=0.01)
    assert full[0] == pytest.approx(0.21, abs=0.01)
    assert full[7] == endless[0]
