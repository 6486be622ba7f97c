"""Whatever is wrong with the input, a user gets one line, an exit code, and nothing half written."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sim.cli import main
from sim.planning import KVCachePlan, plan_kv_cache
from tests.cli import bad_commands, bad_scenarios, bad_traces
from tests.cli.bad_cases import ROW, Bad, gzip_bomb, trace

CASES = (*bad_scenarios.CASES, *bad_traces.CASES, *bad_commands.CASES)


@pytest.fixture(autouse=True, scope="session")
def _compiled(tmp_path_factory: pytest.TempPathFactory) -> None:
    """The core says once that it is being compiled; let it be before anything counts lines."""
    assert main(["run", "toy", "--no-figures", "--json", "--out", str(tmp_path_factory.mktemp("toy"))]) == 0


def lay_out(case: Bad, folder: Path) -> set[str]:
    """Write the files of a case and return everything that then lies in ``folder``."""
    for name, content in case.layout().items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_bytes(content)
    return listing(folder)


def listing(folder: Path) -> set[str]:
    """Every file and folder below ``folder``."""
    return {str(path.relative_to(folder)) for path in folder.rglob("*")}


def test_there_are_enough_cases() -> None:
    assert len(CASES) >= 60
    assert len({case.name for case in CASES}) == len(CASES)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_bad_input_is_one_line(
    case: Bad, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    if "/proc" in " ".join(case.argv) and not Path("/proc").is_dir():
        pytest.skip("needs a place where nobody may write")
    before = lay_out(case, tmp_path)
    monkeypatch.chdir(tmp_path)
    code = main(case.argv)
    out, err = capsys.readouterr()
    assert code == case.code, err
    assert err.count("\n") == 1, err
    assert err.startswith("hybridkv: error: "), err
    assert "Traceback" not in err
    assert [part for part in case.says if part not in err] == [], err
    assert out == ""
    assert listing(tmp_path) == before


def test_a_gzip_bomb_is_refused_before_it_swells(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    case = trace("gzip bomb", gzip_bomb(), "swells", file="trace.jsonl.gz")
    test_bad_input_is_one_line(case, tmp_path, monkeypatch, capsys)


def test_an_error_far_into_a_trace_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = "".join(ROW % (i, i) for i in range(9_000)) + "{\n"
    case = trace("late error", rows, "trace.jsonl:9001")
    test_bad_input_is_one_line(case, tmp_path, monkeypatch, capsys)


def test_a_stall_is_one_line_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """vLLM's own refusals exclude a pool too small for a request, so the pool is shrunk behind their back."""

    def shrunk(*arguments: Any) -> KVCachePlan:
        return replace(plan_kv_cache(*arguments), num_blocks=9)

    monkeypatch.setattr("sim.run.plan_kv_cache", shrunk)
    case = Bad("stall", ("stalled", "2 waiting", "'a'", "needs", "8 are free"), code=1)
    test_bad_input_is_one_line(case, tmp_path, monkeypatch, capsys)


@pytest.mark.parametrize("name", ["unknown engine key", "times backwards", "unknown flag", "pool too small"])
def test_the_installed_command_says_the_same(name: str, tmp_path: Path) -> None:
    case = next(case for case in CASES if case.name == name)
    before = lay_out(case, tmp_path)
    search = os.pathsep.join(entry for entry in sys.path if entry)
    done = subprocess.run(
        [sys.executable, "-m", "sim", *case.argv],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": search},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == case.code
    assert done.stderr.count("\n") == 1
    assert done.stdout == ""
    assert listing(tmp_path) == before
