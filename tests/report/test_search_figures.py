"""Searches and sweeps say what their limits are of, in which unit, and how far their times can be trusted."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.axes import Axes

from sim.report.capacity_figure import capacity_figure
from sim.report.capacity_tables import capacity_tables
from sim.report.curve_figure import curve_figure
from sim.report.sweep_figure import sweep_figure
from sim.report.sweep_labels import axis_label, unit_of
from sim.report.sweep_tables import sweep_columns, sweep_tables
from sim.search import KNOBS, parse_targets
from sim.sweeps import Row, Sweep, here, read_sweep
from sim.sweeps.spec import shipped_sweeps
from tests.report.test_figures import curve

TRUST = "estimate from priors: TPOT within 10-30 %"
TARGETS = "ttft_s.p99<1, preemptions<10, prefix_cache_hit_rate>0.5"


def searched(numbers: list[list[float]], trust: str | None = TRUST) -> Row:
    """The row of a search with one run per load 1, 2, 3 …; the first is the limit."""
    probes = [
        {"seed": 0, "value": load, "numbers": found, "met": True, "verdict": "stable", "tenths": 10, "lengthened": 1}
        for load, found in enumerate(numbers, start=1)
    ]
    values: dict[str, Any] = {f"limit{end}": 1.0 for end in ("", ".lowest", ".highest")} | {"limit.verdict": "stable"}
    return {"error": None, "values": values | {"latency_class": trust}, "limits": [1.0], "probes": probes}


ROWS = {
    "hybrid": searched([[0.2, 0, 0.4], [3.0, 800, 1.0]]),
    "all-full": searched([[0.4, 2, 0.1], [90.0, 900, 0.9]], None),
}


def reaches(axis: Axes) -> float:
    """How high the highest point of a curve stands in its axes, as a share of their height."""
    curves = [line for line in axis.lines if line.get_transform() == axis.transData]
    points = np.concatenate([np.asarray(line.get_xydata()) for line in curves])
    inside = axis.transAxes.inverted().transform(axis.transData.transform(points[np.isfinite(points).all(1)]))
    return float(inside[:, 1].max())


@pytest.mark.parametrize(
    ("over", "label"),
    [
        ("rate", "rate (requests/s)"),
        ("concurrency", "concurrency (requests in flight)"),
        ("gpus", "gpus (replicas)"),
    ],
)
def test_a_capacity_figure_says_what_it_shows_in_which_unit(over: str, label: str) -> None:
    figure = capacity_figure(KNOBS[over], parse_targets(TARGETS), ROWS, "What?", "sub")
    figure.canvas.draw()
    first, second, third = figure.axes
    assert third.get_xlabel() == label
    assert first.get_ylabel() == "time to first token, p99 (s)"
    assert second.get_ylabel() == "preemptions (times)"
    assert third.get_ylabel() == "prefix_cache_hit_rate (share of prompt tokens)"
    bounds = [axis.get_legend_handles_labels()[1][-1] for axis in figure.axes]
    assert bounds == ["target: 1 s", "target: 10", "target: 0.5"]
    assert f"times: {TRUST}" in figure._supxlabel.get_text()  # type: ignore[attr-defined]
    assert (first.get_yscale(), second.get_yscale()) == ("log", "linear")  # there are runs without a preemption
    assert all(reaches(axis) < 0.98 for axis in figure.axes)


def test_a_capacity_table_says_what_it_shows_in_which_unit() -> None:
    rows = {"hybrid": searched([[0.2], [3.0]]), "all-full": searched([[0.4], [90.0]], None)}
    (table,) = capacity_tables(KNOBS["concurrency"], parse_targets("ttft_s.p99<1"), rows, 1, "out")
    assert table.title == "What is the largest concurrency (requests in flight) at which ttft_s.p99<1 s?"
    assert table.header[1] == "concurrency (requests in flight)"
    assert f"times: {TRUST}" in table.notes
    both = rows | {"all-full": searched([[0.4]], "exact")}
    (table,) = capacity_tables(KNOBS["rate"], parse_targets("ttft_s.p99<1"), both, 1, "out")
    assert f"times: hybrid: {TRUST}; all-full: exact" in table.notes


def sweep_of(tmp_path: Path, *plot: str, slo: str = "") -> Sweep:
    """A sweep of two points of the toy, with this plot."""
    lines = ["scenario: toy", "set: {variants: {}}", "grid: {engine.block_size: [16, 32]}", slo]
    (tmp_path / "sweep.yaml").write_text("\n".join(lines))
    return read_sweep(str(tmp_path / "sweep.yaml"), (), plot)


def test_a_sweep_tells_the_class_of_its_times(tmp_path: Path) -> None:
    sweep = sweep_of(tmp_path, "engine.block_size", "ttft_s.p99")
    rows = [row for _, row in here(sweep.points)]
    said = str(rows[0]["values"]["latency_class"])
    (table,) = sweep_tables(sweep, rows, "out")
    assert f"times: {said}" in table.notes
    figure = sweep_figure(sweep_columns(sweep, rows), sweep)
    assert figure.axes[0].get_title().replace("\n", " ") == f"times: {said}"
    assert figure.axes[0].get_ylabel() == "ttft_s.p99 (s)"


def test_a_sweep_of_limits_says_of_what(tmp_path: Path) -> None:
    sweep = sweep_of(tmp_path, "engine.block_size", "limit+limit.highest", slo='slo: "ttft_s.p99<9"\nover: concurrency')
    rows = [searched([[0.1]]), searched([[0.2]])]
    (table,) = sweep_tables(sweep, rows, "out")
    assert table.header[1] == "limit: concurrency (requests in flight)"
    assert "limit: largest concurrency (requests in flight) at which ttft_s.p99<9 s" in table.notes
    label = sweep_figure(sweep_columns(sweep, rows), sweep).axes[0].get_ylabel().replace("\n", " ")
    assert label.startswith("largest concurrency (requests in flight) at which ttft_s.p99<9 s")


def test_memory_that_was_searched_has_the_scenarios_unit(tmp_path: Path) -> None:
    sweep = sweep_of(tmp_path, slo='slo: "ttft_s.p99<9"\nover: memory')
    assert axis_label("limit", sweep).startswith("smallest memory (bytes per GPU) at which")


def test_columns_of_different_units_are_all_named(tmp_path: Path) -> None:
    sweep = sweep_of(tmp_path, "engine.block_size", "ttft_s.p99+evicted_blocks")
    columns = {"engine.block_size": np.array([16, 32]), "ttft_s.p99": np.ones(2), "evicted_blocks": np.zeros(2)}
    figure = sweep_figure(columns, sweep)
    assert figure.axes[0].get_ylabel().replace("\n", " ") == "ttft_s.p99 (s), evicted_blocks (blocks)"
    assert reaches(figure.axes[0]) < 0.95


@pytest.mark.parametrize("name", shipped_sweeps())
def test_every_shipped_plot_has_a_unit(name: str) -> None:
    sweep = read_sweep(name)
    for column in sweep.plot[1].split("+"):
        assert unit_of(column) or column.startswith("limit"), column


def test_the_curve_says_what_its_blocks_are() -> None:
    label = curve_figure(curve(), "sub").axes[0].get_ylabel()
    assert label.startswith("blocks a request takes (")
    assert label.endswith("iB each)")
