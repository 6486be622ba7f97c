"""The page of ``report``: self-contained, escaped, true to the results, and alive in a browser."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from io import StringIO
from pathlib import Path

import numpy as np
import pytest

from sim.cli import main
from sim.errors import InputError
from sim.report.page import page_html, read_runs
from sim.report.page.answer import half_width
from sim.report.page.read import Run
from sim.report.perfetto import write_trace
from tests.report.browser import CHROMIUM, opened

EVIL = "<script>alert('x')</script> & \"quotes\""


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A comparison, an explained run, and a run with markup for a question, of a small scenario."""
    folder = tmp_path_factory.mktemp("results")
    commands = (
        ["compare", "toy", "--no-figures", "--out", str(folder / "compared")],
        ["run", "toy", "--explain", "--no-figures", "--out", str(folder / "explained")],
        ["run", "toy", "--no-figures", "--set", f"question={json.dumps(EVIL)}", "--out", str(folder / "<evil>")],
    )
    for command in commands:
        assert main(command) == 0
    return folder


@pytest.fixture(scope="module")
def runs(results: Path) -> list[Run]:
    """The two variants of the comparison."""
    return read_runs([results / "compared"])


class _Outline(HTMLParser):
    """Tags that are open, and every address a page names."""

    VOID = frozenset({"meta", "link", "br"})

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.addresses: list[str] = []
        self.scripts = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.addresses += [value or "" for name, value in attrs if name in ("src", "href", "action", "data", "poster")]
        self.scripts += tag == "script"
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """An SVG element without content."""

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def outline(page: str) -> _Outline:
    """A page read to its end, every tag closed."""
    parser = _Outline()
    parser.feed(page)
    parser.close()
    assert parser.open == []
    return parser


def test_a_page_is_well_formed_and_names_nothing_outside_itself(results: Path, runs: list[Run]) -> None:
    for page in (page_html(runs), page_html(read_runs([results / "explained"]))):
        assert outline(page).addresses == ["data:,"]
        assert not re.search(r"url\(|@import|https?://(?!www\.w3\.org)", page)


def test_strings_from_files_are_escaped(results: Path, runs: list[Run]) -> None:
    page = page_html(read_runs([results / "<evil>", results / "explained"]))
    assert "<script>alert" not in page
    assert "&lt;script&gt;alert" in page
    assert "\\u003cevil>" in page  # in the data of a chart: a label cannot end the element it stands in
    charts = page.count('<figure class="chart">')
    assert outline(page).scripts == charts + 1


def test_the_answer_and_the_numbers_are_those_of_the_results(runs: list[Run]) -> None:
    page = page_html(runs)
    assert [run.label for run in runs] == ["hybrid", "all-full"]
    for run in runs:
        assert f"<td>{run.summary['peak_running']:,}</td>" in page
        assert f"<td>{run.summary['num_blocks']:,}</td>" in page
    assert "hybrid against all-full" in page
    assert "<th scope=row>engine.disable_hybrid_kv_cache_manager</th><td>false</td><td>true</td>" in page
    assert runs[0].summary["latency_class"].split(":")[0] in page


def test_equal_results_give_equal_pages(results: Path, runs: list[Run]) -> None:
    assert page_html(runs) == page_html(read_runs([results / "compared"]))


def test_several_runs_come_side_by_side_under_names_that_tell_them_apart(results: Path) -> None:
    named = read_runs([results / "explained", results / "compared"])
    assert [run.label for run in named] == ["explained", "hybrid", "all-full"]
    with pytest.raises(InputError, match="named twice"):
        read_runs([results / "explained", results / "explained"])


@pytest.mark.parametrize(
    ("spoil", "says"),
    [
        (lambda folder: (folder / "summary.json").write_text("{"), "cannot be read as JSON"),
        (lambda folder: (folder / "summary.json").write_text("[]"), "is no JSON object"),
        (lambda folder: (folder / "steps.parquet").write_text("no"), "cannot be read as Parquet"),
        (lambda folder: (folder / "steps.parquet").unlink(), "holds no results of a run (steps.parquet missing)"),
    ],
)
def test_bad_results_are_one_line(spoil: object, says: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "toy", "--no-figures", "--out", str(tmp_path / "run")]) == 0
    assert callable(spoil)
    spoil(tmp_path / "run")
    capsys.readouterr()
    assert main(["report", str(tmp_path / "run")]) == 2
    error = capsys.readouterr().err
    assert says in error
    assert len(error.splitlines()) == 1
    assert not (tmp_path / "run" / "report.html").exists()


def test_the_command_writes_page_and_trace(results: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page, trace = tmp_path / "page.html", tmp_path / "trace.json"
    capsys.readouterr()
    assert main(["report", str(results / "compared"), "--out", str(page), "--perfetto", str(trace)]) == 0
    assert capsys.readouterr().out.split() == [str(page), str(trace)]
    assert page.read_text(encoding="utf-8").startswith("<!doctype html>")
    assert json.loads(trace.read_text(encoding="utf-8"))["traceEvents"]


def test_the_trace_of_events_holds_every_step_and_request(runs: list[Run]) -> None:
    stream = StringIO()
    write_trace(stream, runs)
    events = json.loads(stream.getvalue())["traceEvents"]
    for process, run in enumerate(runs, 1):
        own = [event for event in events if event["pid"] == process]
        steps = [event for event in own if event["ph"] == "X"]
        assert [event["name"] for event in steps] == [f"step {number}" for number in run.steps["step"].tolist()]
        assert all(event["dur"] >= 0 for event in steps)
        begun = [event for event in own if event["ph"] == "b"]
        ended = [event for event in own if event["ph"] == "e"]
        assert sorted((event["id"], event["name"]) for event in begun) == sorted(
            (event["id"], event["name"]) for event in ended
        )
        assert {event["name"] for event in begun} >= set(run.requests["id"].tolist())
        blocks = [event["args"]["blocks in use"] for event in own if event["name"] == "blocks in use"]
        assert blocks == run.steps["used_blocks"].tolist()


def test_batch_means_cover_the_mean_of_independent_values() -> None:
    draws = np.random.default_rng(3).normal(5.0, 2.0, (200, 4000))
    widths = [half_width(row) for row in draws]
    covered = sum(abs(float(row.mean()) - 5.0) <= (width or 0.0) for row, width in zip(draws, widths, strict=True))
    assert 180 <= covered <= 200


@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium is installed (Debian: chromium)")
@pytest.mark.parametrize(
    ("width", "dark", "folders"), [(1280, True, ["explained"]), (400, False, ["<evil>", "explained"])]
)
def test_in_a_browser_it_loads_and_shows_the_numbers_under_the_pointer(
    results: Path, width: int, dark: bool, folders: list[str], tmp_path: Path
) -> None:
    found = opened(page_html(read_runs([results / name for name in folders])), width, tmp_path, dark=dark)
    assert (found["faults"], found["console"]) == ([], [])
    assert found["paper"] == ("rgb(22, 23, 26)" if dark else "rgb(255, 255, 255)")
    assert found["width"] == width
    assert found["content"] <= width, "the page scrolls sideways"
    assert found["texts"] > 20
    assert found["smallest"] >= 8.5, "text in a figure is too small to read"
    assert found["hidden"], "the tip goes when the pointer leaves"
    assert len(found["shown"]) > 4
    assert all(text for text in found["shown"]), found["shown"]
    assert any("time since the first step" in text and "pool in use" in text for text in found["shown"])
