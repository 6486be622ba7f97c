"""Figures carry the question, units on every axis and all of the data, for the smallest and the odd results too."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.figure import Figure

from sim import plan
from sim.capacity import CapacityCurve, capacity_curve
from sim.explanation import CAUSES
from sim.report.block_figure import block_map_figure, requests_figure
from sim.report.compare_figure import compare_figure
from sim.report.curve_figure import curve_figure
from sim.report.lost_figure import lost_figure
from sim.report.pool_figure import pool_figure
from sim.report.run_figures import Drawn, latency_figure, memory_figure, prefix_figure, write_run_figures
from sim.report.style import ecdf
from sim.report.timeline import band, with_idle
from sim.report.waterfall_figure import waterfall_figure
from sim.run import Result, run_scenario
from sim.scenario import load_scenario
from sim.story import BlockMap


def steps(count: int, **changes: Any) -> dict[str, Any]:
    """Columns of ``count`` steps of 10 ms each, one after the other."""
    start = np.arange(count) * 0.01
    columns = {
        "step": np.arange(1, count + 1),
        "start_s": start,
        "end_s": start + 0.01,
        "used_blocks": np.arange(count) % 7,
        "running_requests": np.ones(count, np.int64),
        "waiting_requests": np.zeros(count, np.int64),
        "preempted_requests": np.zeros(count, np.int64),
    }
    return {**columns, **changes}


def pool_steps(count: int) -> dict[str, Any]:
    """The same with the shares of two groups."""
    names = [f"group_{group}_{share}_bytes" for group in (0, 1) for share in ("live", "rounding", "padding", "cached")]
    return steps(count, **{name: np.arange(count) % 7 << 28 for name in (*names, "free_bytes")})


def requests(count: int) -> dict[str, Any]:
    """Columns of ``count`` requests."""
    return {
        "arrival_s": np.arange(count) * 0.1 - 0.05,
        "first_scheduled_s": np.arange(count) * 0.1,
        "first_token_s": np.arange(count) * 0.1 + 0.1,
        "finish_s": np.arange(count) * 0.1 + 1.0,
        "preemptions": np.arange(count) % 3,
        "prompt_tokens": np.full(count, 100),
        "cached_tokens": np.full(count, 32),
        "ttft_s": np.linspace(0.1, 3.0, count),
        "tpot_s": np.full(count, np.nan),
    }


def lost(count: int) -> dict[str, Any]:
    """What the causes of an explained run took from ``count`` requests."""
    return {f"lost_{cause}_tokens": np.full(count, i) for i, cause in enumerate(CAUSES)}


def curve() -> CapacityCurve:
    """A curve of two points."""
    scenario = load_scenario("toy")
    return capacity_curve(scenario.model, scenario.engine, scenario.memory, [112, 1024])


def toy() -> Result:
    """The toy's result."""
    return run_scenario(load_scenario("toy"))


def block_map() -> BlockMap:
    """What the toy's blocks did."""
    blocks = BlockMap()
    run_scenario(load_scenario("toy"), watchers=[blocks])
    return blocks


@cache
def figures() -> dict[str, Figure]:
    """One of each."""
    return {
        "memory": memory_figure(steps(50), 100, "sub"),
        "latency": latency_figure(requests(20), "sub", "estimate"),
        "prefix": prefix_figure(requests(20), "sub"),
        "pool": pool_figure(pool_steps(50), ["full_attention", "sliding_window 8"], "sub"),
        "requests": requests_figure(requests(20), steps(50), "sub"),
        "lost": lost_figure(requests(20) | lost(20), "sub"),
        "blocks": block_map_figure(block_map(), ["full_attention", "sliding_window 8"], "sub"),
        "waterfall": waterfall_figure(plan("gemma-3-27b", max_model_len=8192).answer.waterfall, "sub"),
        "curve": curve_figure(curve(), "sub"),
        "compare": compare_figure("What differs?", {"a": toy(), "b": toy()}, "sub"),
    }


@pytest.mark.parametrize(
    "name", ["memory", "latency", "prefix", "pool", "requests", "lost", "blocks", "waterfall", "curve", "compare"]
)
def test_a_figure_asks_and_labels(name: str) -> None:
    figure = figures()[name]
    assert figure.get_suptitle().endswith("?")
    for axis in figure.axes:
        shared = axis.get_shared_x_axes().get_siblings(axis)
        assert any(other.get_xlabel() for other in shared), name
        bars = not axis.lines
        shared = axis.get_shared_y_axes().get_siblings(axis)
        assert bars or any(other.get_ylabel() for other in shared), name


@pytest.mark.parametrize("count", [0, 1, 2, 5_000])
def test_any_number_of_steps_and_requests_can_be_drawn(count: int, tmp_path: Path) -> None:
    paths = write_run_figures(tmp_path, Drawn(requests(count), steps(count), 10, "s", "estimate"))
    assert all(path.read_bytes().startswith(b"\x89PNG") for path in paths)
    labels, shares, rows = ["full_attention"] * 2, pool_steps(count), requests(count) | lost(count)
    explained = write_run_figures(tmp_path, Drawn(rows, shares, 10, "s", "estimate", labels))
    assert [path.name for path in explained][-2:] == ["pool.png", "lost_hits.png"]


def test_equal_runs_draw_equal_files(tmp_path: Path) -> None:
    for name in ("a", "b"):
        write_run_figures(tmp_path / name, Drawn(requests(9), steps(9), 10, "s", "estimate"))
    for path in (tmp_path / "a").iterdir():
        assert path.read_bytes() == (tmp_path / "b" / path.name).read_bytes()


def test_no_peak_is_lost_by_thinning() -> None:
    time = np.arange(100_000.0)
    values = np.zeros(100_000)
    values[77_777] = 5
    assert band(time, values).high.max() == 5
    assert band(time, values).low.max() == 0


def test_thinned_means_are_over_time() -> None:
    values = np.tile([0.0, 10.0], 500)
    time = np.cumsum(np.tile([9.0, 1.0], 500))  # a value lasts until the next one: 0 for one second, 10 for nine
    assert band(time, values, slices=10).mean == pytest.approx(np.full(10, 9.0), abs=0.2)


def test_an_idle_engine_shows_as_idle() -> None:
    time, step = with_idle(np.array([0.0, 3.0]), np.array([1.0, 4.0]))
    assert time.tolist() == [0, 1, 3, 4]
    assert step.tolist() == [0, -1, 1, -1]


def test_overlapping_steps_are_not_idle() -> None:
    assert with_idle(np.array([0.0, 1.0, 2.0]), np.array([2.0, 3.0, 4.0]))[1].tolist() == [0, 1, 2, -1]


def test_a_distribution_ends_at_one_however_many_there_are() -> None:
    values, share = ecdf(np.append(np.random.default_rng(0).random(50_000), np.nan))
    assert len(values) <= 2_001
    assert (share[0], share[-1]) == (0, 1)
