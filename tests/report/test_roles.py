"""Replicas that prefill and those that decode are shown apart, replicas that do the same as one, in every chart."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from sim.cli import main
from sim.report.compare_figure import compare_figure
from sim.report.compare_tables import Outcome, compare_tables
from sim.report.page import page_html, read_runs
from sim.report.results import drawn, write_results
from sim.report.run_figures import Drawn, memory_figure, run_figures
from sim.report.run_tables import run_tables
from sim.report.timeline import spread, timelines
from sim.run import Result, run_scenario
from sim.scenario import Scenario, load_scenario

SMALL = ["variants={}", "workload.synthetic.requests=80"]
REPLICAS = {
    "split": [*SMALL, "replicas.prefill=1", "replicas.decode=2", "replicas.transfer_gb_per_s=25"],
    "alike": [*SMALL, "replicas.count=2"],
}


def scenario(kind: str) -> Scenario:
    """Some requests of the shipped comparison on replicas of these roles."""
    return load_scenario("prefill-decode", REPLICAS[kind])


@pytest.fixture(scope="module")
def results() -> dict[str, Result]:
    """A split, and two replicas alike."""
    return {kind: run_scenario(scenario(kind)) for kind in REPLICAS}


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What ``run`` leaves of both, without figures."""
    folder = tmp_path_factory.mktemp("roles")
    for kind, values in REPLICAS.items():
        sets = [word for value in values for word in ("--set", value)]
        assert main(["run", "prefill-decode", "--no-figures", *sets, "--out", str(folder / kind)]) == 0
    return folder


def charts(page: str) -> dict[str, dict[str, Any]]:
    """The data of each chart of a page, by its title."""
    pattern = r"<figcaption>([^<]*)</figcaption>(?:(?!</figure>).)*?<script type=\"application/json\">(.*?)</script>"
    return {title: json.loads(data) for title, data in re.findall(pattern, page, re.DOTALL)}


def over_time(steps: Any, replica: int, name: str, at: NDArray[np.float64]) -> NDArray[np.float64]:
    """A replica's value at some moments, looked up one by one: that of the step it is in, 0 between steps."""
    start, end, own = (np.asarray(steps[key]) for key in ("start_s", "end_s", "replica"))
    zero = start.min()
    values = np.asarray(steps[name])

    def value(moment: float) -> float:
        inside = np.flatnonzero((own == replica) & (start - zero <= moment) & (moment < end - zero))
        return float(values[inside[-1]]) if len(inside) else 0.0

    return np.array([value(moment) for moment in at])


def test_series_side_by_side_are_what_looking_at_every_moment_finds() -> None:
    rng = np.random.default_rng(0)
    moments = np.linspace(0.0, 10.0, 7_001)[:-1].reshape(7, 1_000) + 5.0 / 7_000
    for _ in range(50):
        lengths = rng.integers(0, 30, rng.integers(1, 4))
        series = [(np.sort(rng.uniform(0, 10, n)), rng.integers(0, 9, n)) for n in lengths]
        seen = np.stack([np.append(0, values)[np.searchsorted(time, moments, "right")] for time, values in series])
        found = spread(series, 10.0, slices=7)
        assert found.mean == pytest.approx(seen.mean((0, 2)), abs=0.05)
        assert (found.low <= seen.min((0, 2))).all()  # a value of less than a moment may be missed by looking
        assert (found.high >= seen.max((0, 2))).all()
        assert set(found.low.tolist() + found.high.tolist()) <= {0, *np.concatenate([v for _, v in series]).tolist()}


@pytest.mark.parametrize("name", ["running_requests", "waiting_requests", "used_blocks"])
def test_a_role_is_the_mean_of_its_replicas_alone(results: dict[str, Result], name: str) -> None:
    steps, slices = results["split"].steps, 40
    prefill, decode = timelines(steps, ["prefill", "decode", "decode"])
    assert [prefill.role, decode.role] == ["prefill", "decode"]
    width = decode.end_s / slices
    at = (np.arange(slices * 100) + 0.5) * width / 100
    of_decode = np.stack([over_time(steps, replica, name, at) for replica in (1, 2)])
    found = decode.band(steps[name], slices=slices)
    assert found.mean == pytest.approx(
        of_decode.mean(0).reshape(slices, 100).mean(1), abs=0.03 * of_decode.max() + 1e-9
    )
    assert found.high.max() == of_decode.max()
    assert prefill.band(steps[name], slices=10**6).high.max() == over_time(steps, 0, name, at).max()
    assert sorted([*prefill.rows(), *decode.rows()]) == list(range(len(steps["step"])))


def test_the_page_draws_roles_apart_and_replicas_alike_as_one(folders: Path) -> None:
    split, alike = read_runs([folders / "split", folders / "alike"])
    both = charts(page_html([split, alike]))
    for title in ("Does the KV cache fill up?", "How many requests run together?", "How many wait?"):
        assert [series["name"] for series in both[title]["series"]] == ["split: prefill", "split: decode", "alike"]
    assert both["How many wait?"]["y"] == "requests waiting, per replica"
    own = charts(page_html([split]))
    for role, replicas in (("prefill", (0,)), ("decode", (1, 2))):
        chart = own[f"Who runs, who waits, of the replicas that {role}?"]
        mine = np.isin(split.steps["replica"], replicas)
        for series in chart["series"]:
            assert max(series["y"]) <= split.steps[f"{series['name']}_requests"][mine].max()


def test_a_page_advises_explain_only_where_it_works(
    folders: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    split, alike = read_runs([folders / "split", folders / "alike"])
    assert "--explain" not in page_html([split])
    assert "rule took the rest, add --explain" in page_html([alike])
    assert "rule took the rest for alike, add --explain" in page_html([split, alike])
    for run, code in ((split, 2), (alike, 0)):
        command = ["run", str(run.folder / "scenario.resolved.yaml"), "--explain", "--no-figures"]
        assert main([*command, "--out", str(tmp_path / run.label)]) == code
    assert "replicas.prefill" in capsys.readouterr().err
    assert "rule took the rest" not in page_html(read_runs([tmp_path / "alike"]))


def test_figures_draw_roles_apart(results: dict[str, Result]) -> None:
    figure = compare_figure("Which?", results, "sub")
    running = figure.axes[0]
    assert [line.get_linewidth() for line in running.lines] == [0.9, 1.8, 1.5]
    assert "thin lines for the replicas that prefill" in figure._supxlabel.get_text()  # type: ignore[attr-defined]
    assert running.get_ylabel() == "requests running per replica"
    steps = results["split"].steps
    memory = memory_figure(steps, 9, "sub", ["prefill", "decode", "decode"])
    assert [line.get_label() for line in memory.axes[1].lines] == ["prefill: running", "decode: running"]
    assert memory.axes[2].get_ylabel() == "requests per replica"
    with_pool = run_figures(drawn(scenario("alike"), run_scenario(scenario("alike"), explain=True), None))
    assert with_pool["pool"].axes[0].get_xlim()[1] > 0


def test_the_figures_of_a_prefill_replica_show_the_requests_it_computed(
    results: dict[str, Result], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown: dict[str, Drawn] = {}
    monkeypatch.setattr("sim.report.run_figures.write_run_figures", lambda path, run: shown.update({path.name: run}))
    write_results(tmp_path, scenario("split"), results["split"], figures=True)
    counts = [len(shown[f"replica-{replica}"].requests["arrival_s"]) for replica in range(3)]
    assert counts[0] == counts[1] + counts[2] == 80
    assert [run.subtitle.rpartition(", ")[2] for run in shown.values()] == [
        "replica 0 (prefill)",
        "replica 1 (decode)",
        "replica 2 (decode)",
    ]


def test_tables_say_peaks_and_means_of_each_role(results: dict[str, Result]) -> None:
    own = results["split"].summary["replicas"]
    prefill, decode = own[0], own[1:]
    cells = {
        row[0]: row[1:]
        for row in compare_tables(
            scenario("split"), [Outcome(kind, result) for kind, result in results.items()], "out"
        )[0].rows
    }
    peak = max(part["peak_running"] for part in decode)
    assert cells["running, peak"][0] == f"{prefill['peak_running']} prefill, {peak} decode"
    assert "prefill" not in cells["running, peak"][1]
    answer, *_ = run_tables(scenario("split"), results["split"], "out")
    rows = {row[0]: row[1] for row in answer.rows}
    assert rows["running, decode"].startswith(f"{peak} at the peak")
    assert rows["running, prefill"].endswith(f"{prefill['peak_waiting']} waiting at most")
