"""The command: how it is found, what it answers, and how it ends."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from gpu_check.claims import Claim, at_most, equal, exit_code, not_tested
from gpu_check.command import main
from gpu_check.device import Device
from gpu_check.report import Report

CPU = Device("cpu", "a processor", None, "2.13.0", 1 << 30)


def run(*arguments: str, code: str = "", path: tuple[Path, ...] = (), module: str = "sim") -> tuple[int, str, str]:
    """Exit code and output of ``python -m module`` after ``code``, with the folders of ``path`` searched first."""
    search = [*map(str, path), *filter(None, sys.path)]
    start = f"runpy.run_module({module!r}, alter_sys=True, run_name='__main__')"
    program = f"import sys, runpy\n{code}\nsys.argv[1:] = {list(arguments)!r}\n{start}"
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(search)},
    )
    return done.returncode, done.stdout, done.stderr


WITHOUT_TORCH = """
class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.partition('.')[0] == 'torch':
            raise ModuleNotFoundError(name)
import importlib.util
find = importlib.util.find_spec
importlib.util.find_spec = lambda name, package=None: None if name == 'torch' else find(name, package)
sys.meta_path.insert(0, Missing())
"""


@pytest.fixture
def installed(tmp_path: Path) -> Path:
    """A folder with what an installation leaves behind for others to find: the entry points of pyproject.toml."""
    project = Path(__file__).parents[2] / "pyproject.toml"
    groups = tomllib.loads(project.read_text())["project"]["entry-points"]
    lines = [
        line for group, points in groups.items() for line in (f"[{group}]", *(f"{k} = {v}" for k, v in points.items()))
    ]
    info = tmp_path / "hybridkv_here-1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: hybridkv-here\nVersion: 1\n")
    (info / "entry_points.txt").write_text("\n".join(lines) + "\n")
    return tmp_path


def test_hybridkv_finds_the_command_as_an_entry_point(installed: Path) -> None:
    code, out, _ = run("--help", path=(installed,))
    assert code == 0
    assert "gpu-check" in out


def test_hybridkv_runs_the_command(installed: Path) -> None:
    code, out, err = run("gpu-check", "toy", "--device", "nowhere", path=(installed,))
    assert (code, out) == (2, "")
    assert err == "hybridkv: error: --device: is one of auto, cuda, cpu, got 'nowhere'\n"


@pytest.mark.parametrize("arguments", [("toy",), ("toy", "--device", "cpu", "--json"), ("toy", "--device", "cuda")])
def test_without_torch_one_line_says_how_to_install_it(arguments: tuple[str, ...]) -> None:
    code, out, err = run(*arguments, code=WITHOUT_TORCH, module="gpu_check")
    assert (code, out) == (2, "")
    assert err == "hybridkv: error: gpu-check: PyTorch is not installed: pip install 'hybridkv[gpu]'\n"


WRONG = {
    "nosuch": "nosuch: no such file",
    "": "Missing argument 'FILE.yaml|NAME'",
    "toy --checks ,": "--checks: names at least one of memory, content, throughput",
    "toy --checks contents": "--checks: names some of memory, content, throughput, got 'contents'; nearest is content",
    "toy --bytes many": "--bytes: expected a whole number, or one like 32k (32,000) or 32K (32,768), got 'many'",
    "toy --fraction 0.5 --bytes 2G": "--bytes: give one of --fraction and --bytes",
    "toy --fraction 1.5": "--fraction: must be above 0 and below 1, got 1.5",
}


@pytest.mark.parametrize("arguments", WRONG)
def test_wrong_input_is_one_line_and_ends_with_2(arguments: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(arguments.split()) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith(f"hybridkv: error: {WRONG[arguments]}")
    assert len(err.splitlines()) == 1


CONFIRMED = equal("memory", "bytes of the pool", 4096, 4096, unit="bytes")
REFUTED = at_most("content", "largest error", float("nan"), 1e-5)
OPEN = not_tested("memory", "free memory", "needs CUDA")


@pytest.mark.parametrize(
    ("claims", "code"),
    [([CONFIRMED, OPEN], 0), ([CONFIRMED, REFUTED, OPEN], 1), ([OPEN], 2), ([], 2)],
)
def test_the_exit_code_is_the_verdict(claims: list[Claim], code: int) -> None:
    assert exit_code(claims) == code


def test_the_report_as_a_table_and_as_json(tmp_path: Path) -> None:
    report = Report("mine", CPU, [CONFIRMED, REFUTED, OPEN])
    table = report.table()
    assert table.title == "mine: refuted on a processor, torch 2.13.0"
    assert table.rows[0] == ("memory", "bytes of the pool", "4,096 bytes", "4,096 bytes", "", "confirmed")
    assert table.rows[1] == ("content", "largest error", "0", "-", "1e-05", "REFUTED")
    assert table.rows[2][-1] == "not tested on this device"
    assert table.notes == ["free memory: needs CUDA"]
    report.write(tmp_path)
    written = json.loads((tmp_path / "gpu_check.json").read_text())
    assert written["verdict"] == "refuted"
    assert written["claims"][1]["measured"] == "nan"
    assert written["device"]["torch"] == "2.13.0"
