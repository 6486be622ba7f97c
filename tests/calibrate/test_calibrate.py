"""Fitting coefficients: means are linear in them, known ones are found again, and what cannot be told apart is held."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sim.calibrate import Point, calibrate, calibration_base, read_points
from sim.calibrate.fit import Calibration, determined, predictions
from sim.cli import main
from sim.errors import InputError
from sim.scenario import read_step_time
from sim.step_time.additive import COEFFICIENTS

BASE: dict[str, Any] = {
    "model": "gpt-oss-20b",
    "hardware": {"gpu": "H100-80GB"},
    "engine": {"enable_prefix_caching": False},
    "memory": {"available_kv_cache_memory_gib": 40},
}
TRUTH = np.array([3.0, 2.0, 1.3, 1.1, 50.0, 12.0, 3.0, 0.0])


def point(clients: int, lengths: tuple[int, int], ranks: int = 1, **measured: float) -> Point:
    """A closed loop of two requests a client."""
    low, high = lengths
    engine = {"engine": {"tensor_parallel_size": ranks}}
    name = f"c{clients} {low}/{high} tp{ranks}"
    return Point(name, (low // 2, low), (high, high), 2 * clients, measured, concurrency=clients, changes=engine)


def measured(points: list[Point], coefficients: np.ndarray) -> list[Point]:
    """The same points, measured on a machine that has these coefficients."""
    calibration = Calibration(BASE, points)
    found = []
    for one in points:
        ttft, tpot, per_token = calibration.means(one, coefficients).tolist()
        means = {"mean_ttft_ms": ttft, "mean_tpot_ms": tpot, "output_throughput": 1 / per_token}
        found.append(
            Point(one.place, one.input_len, one.output_len, one.num_prompts, means, one.concurrency, None, one.changes)
        )
    return found


POINTS = [
    point(clients, lengths, ranks) for ranks in (1, 4) for clients in (1, 8, 24) for lengths in ((900, 12), (60, 40))
]


@pytest.fixture(scope="module")
def known() -> list[Point]:
    """Points that were measured on a machine whose coefficients are known."""
    return measured(POINTS, TRUTH)


def test_means_are_linear_in_the_coefficients(known: list[Point]) -> None:
    """Answers that arrive at once: equations made elsewhere say what the engine gives for other coefficients."""
    calibration = Calibration(BASE, known)
    elsewhere = np.where(np.arange(8) < 7, calibration.prior, 0.0)
    rows = calibration.rows(elsewhere)
    for one, row in zip(known, rows, strict=True):
        assert predictions(one, row, TRUTH) == pytest.approx(list(one.measured.values()), rel=2e-4), one.place


def test_known_coefficients_are_found_again(known: list[Point]) -> None:
    found = calibrate(BASE, known, {"source": "test"})
    assert found.simulated == pytest.approx(found.measured, rel=0.02)
    errors = found.section()["origin"]
    assert errors["points"] == 12
    assert errors["in_sample_pct"]["tpot"] < 1
    assert errors["left_out_pct"]["tpot"] < 10
    assert found.fit.coefficients[[4, 6]] == pytest.approx(TRUTH[[4, 6]], rel=0.2)


def test_one_tensor_parallel_size_says_nothing_about_the_link(known: list[Point]) -> None:
    alone = [one for one in known if "tp1" in one.place]
    fit, _ = Calibration(BASE, alone).fit()
    assert "g" in fit.held
    assert fit.section()["g"] == 2.5


def test_what_others_can_make_up_for_is_not_determined() -> None:
    """Two columns in proportion: each is seen, and neither is known once the other is free; the third is."""
    rows = np.array([[1.0, 1.0, 0.0], [0.5, 0.5, 0.5], [0.2, 0.2, 0.8], [0.6, 0.6, 0.1]])
    seen, alone = determined(rows, np.ones(4), np.full(3, 0.3))
    assert (seen > 0.9).all()
    assert (alone[:2] < 0.55).all()
    assert alone[2] > 0.9
    assert determined(np.zeros((3, 2)), np.ones(3), np.full(2, 0.3))[0].tolist() == [0.0, 0.0]


def test_points_that_say_nothing_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    nothing = (np.zeros(8), np.zeros(8))
    monkeypatch.setattr("sim.calibrate.fit.determined", lambda *_: nothing)
    with pytest.raises(InputError, match="these points determine no coefficient; give points of several"):
        Calibration(BASE, [point(1, (64, 8), mean_tpot_ms=5.0)]).fit()


def test_an_open_loop_is_fitted_too() -> None:
    """One rate, one size: the fixed cost per layer, with all else at the prior, meets the time per token."""
    one = Point("3 per s", (200, 200), (20, 20), 60, {"mean_tpot_ms": 3.1, "mean_ttft_ms": 30.0}, request_rate=3.0)
    calibration = Calibration(BASE, [one])
    fit, _ = calibration.fit()
    assert calibration.means(one, fit.coefficients)[1] == pytest.approx(3.1, rel=0.05)
    assert "g" in fit.held
    assert "b" in fit.weak


def test_the_command_writes_what_a_scenario_names(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = ["concurrency,input_len,output_len,num_prompts,mean_ttft_ms,mean_tpot_ms,tensor_parallel_size"]
    lines += [f"{c},64,8,{2 * c},{20 + c},{4 + c / 10},{tp}" for c in (1, 4, 8) for tp in (1, 2)]
    (tmp_path / "points.csv").write_text("\n".join(lines))
    out = tmp_path / "steps.yaml"
    argv = ["calibrate", str(tmp_path / "points.csv"), "gpt-oss-20b", "--vllm", "0.33.0", "--out", str(out), "--json"]
    assert main(argv) == 0
    printed = json.loads(capsys.readouterr().out)
    section = read_step_time(out)
    assert section == printed
    assert section["origin"]["points"] == 6
    assert set(COEFFICIENTS) <= set(section)
    assert main([*argv[:-1]]) == 0
    assert "written to" in capsys.readouterr().out


def test_a_scenario_gives_model_memory_and_flags(tmp_path: Path) -> None:
    (tmp_path / "case.yaml").write_text(
        "model: gpt-oss-20b\nmemory: {num_gpu_blocks_override: 900}\nworkload: {trace: x}\n"
    )
    base = calibration_base(str(tmp_path / "case.yaml"), [])
    assert base == {"model": "gpt-oss-20b", "memory": {"num_gpu_blocks_override": 900}}
    assert calibration_base("gpt-oss-20b", [])["memory"]["available_kv_cache_memory_gib"] > 40


def test_points_are_read_from_where_they_lie(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot be read"):
        read_points(tmp_path / "no.csv")
