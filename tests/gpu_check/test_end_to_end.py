"""The command from a scenario to files and an exit code."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from gpu_check import content
from gpu_check.claims import at_most
from gpu_check.command import main
from sim.errors import StallError

CPU = ["--device", "cpu", "--bytes", "16m", "--checks", "memory,content"]


def test_a_scenario_is_confirmed_and_its_report_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["toy", *CPU, "--out", str(tmp_path / "out")]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    assert out.startswith("toy: confirmed on ")
    report = json.loads((tmp_path / "out" / "gpu_check.json").read_text())
    assert report["verdict"] == "confirmed"
    assert {claim["check"] for claim in report["claims"]} == {"memory", "content"}
    assert report["device"]["kind"] == "cpu"
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["gpu_check.json"]


def test_json_is_what_is_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["toy", *CPU, "--checks", "memory", "--out", str(tmp_path), "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == json.loads((tmp_path / "gpu_check.json").read_text())


def test_what_is_refuted_ends_with_1(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def wrong(*_: Any) -> list[Any]:
        return [at_most("content", "largest error", 0.5, 1e-5)]

    monkeypatch.setattr(content, "content_claims", wrong)
    assert main(["toy", *CPU, "--checks", "content", "--out", str(tmp_path)]) == 1
    assert "REFUTED" in capsys.readouterr().out


def test_a_run_that_stalls_could_not_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its own exit code, 1, is that of a refuted claim."""

    def stalled(*_: Any) -> list[Any]:
        raise StallError("nothing in flight and no arrival left")

    monkeypatch.setattr(content, "content_claims", stalled)
    assert main(["toy", *CPU, "--out", str(tmp_path / "out")]) == 2
    assert capsys.readouterr().err == "hybridkv: error: nothing in flight and no arrival left\n"
    assert list(tmp_path.iterdir()) == []


def test_an_interrupted_check_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: Any) -> list[Any]:
        raise KeyboardInterrupt

    monkeypatch.setattr(content, "content_claims", interrupted)
    assert main(["toy", *CPU, "--out", str(tmp_path / "out")]) == 130
    assert list(tmp_path.iterdir()) == []
