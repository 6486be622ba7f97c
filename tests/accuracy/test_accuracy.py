"""How far simulated serving runs are from measured ones, end to end, with the coefficients that are shipped."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from benchmarks.accuracy.compare import Compared, mape
from benchmarks.accuracy.table import FITTED_RATE, Elsewhere, accuracy_lines, compare_all, compare_elsewhere


@pytest.fixture(scope="session")
def groups(shared_data: Path) -> list[Compared]:
    """Every InferenceX point, simulated with shipped coefficients and with its kind of requests left out of the fit."""
    assert (shared_data / "measured").is_dir()
    return compare_all(lambda _: None)


@pytest.fixture(scope="session")
def elsewhere(groups: list[Compared]) -> Elsewhere:
    """The sweep to the memory limit and the open-loop runs."""
    return compare_elsewhere(groups)


def test_fitted_points(groups: list[Compared]) -> None:
    tpot, throughput, ttft = mape(groups, "fitted", flagged=False)
    assert (tpot <= 5, throughput <= 5, ttft <= 10) == (True, True, True), (tpot, throughput, ttft)


def test_points_whose_kind_of_requests_was_left_out(groups: list[Compared]) -> None:
    tpot, throughput, ttft = mape(groups, "left_out", flagged=False)
    assert (tpot <= 8, throughput <= 8, ttft <= 20) == (True, True, True), (tpot, throughput, ttft)


def test_flagged_outliers_change_little(groups: list[Compared]) -> None:
    assert sum(int((~group.plain).sum()) for group in groups) == 4
    assert (mape(groups, "fitted", flagged=True) - mape(groups, "fitted", flagged=False) < 1).all()


def test_the_sweep_to_the_memory_limit_with_coefficients_from_elsewhere(elsewhere: Elsewhere) -> None:
    assert (np.abs(elsewhere.sweep).mean(axis=0) <= 5).all(), elsewhere.sweep
    assert elsewhere.limit.peak_blocks == elsewhere.limit.num_blocks
    assert 0.5 <= elsewhere.limit.preemptions / elsewhere.preemptions <= 2


def test_an_open_loop_at_rates_it_was_not_fitted_to(elsewhere: Elsewhere) -> None:
    for rate, (e2e, _, _) in elsewhere.openloop.items():
        assert abs(e2e) <= 5, rate


def test_the_table_says_all_of_it(groups: list[Compared], elsewhere: Elsewhere) -> None:
    lines = list(accuracy_lines(groups, elsewhere))
    assert sum("fitted" in line for line in lines) == 8
    assert any("129" in line and "preemptions" in line for line in lines)


def test_the_readme_says_what_the_table_does(groups: list[Compared], elsewhere: Elsewhere) -> None:
    said = (Path(__file__).resolve().parents[2] / "README.md").read_text(encoding="utf-8")
    pairs = [mape(groups, part, flagged=True) for part in ("fitted", "left_out")]
    unfitted = [row for rate, row in elsewhere.openloop.items() if rate != FITTED_RATE]
    e2e, tpot, ttft = np.abs(np.array(unfitted)).mean(axis=0)
    for row in (
        [f"{value:.1f} %" for value in mape(groups, "fitted", flagged=False)],
        [f"{value:.1f} %" for value in mape(groups, "left_out", flagged=False)],
        [f"{fitted:.1f} %, {left_out:.1f} %" for fitted, left_out in zip(*pairs, strict=True)],
        [f"{value:.1f} %" for value in np.abs(elsewhere.sweep).mean(axis=0)],
        [f"{value:.1f} %" for value in (tpot, e2e, ttft)],
    ):
        assert f"| {' | '.join(row)} |" in said
    assert f"{elsewhere.limit.preemptions} preemptions were simulated" in said
