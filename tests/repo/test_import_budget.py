"""What a command does not need it does not import: ``--help`` and ``plan`` answer at once."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

PROBE = """
import sys
sys.argv = ["hybridkv", *{argv!r}]
try:
    {code}
except SystemExit as end:
    assert end.code in (0, None), end.code
print("loaded:", *sorted(set(sys.modules) & {heavy!r}))
"""
FIGURES = {"pandas", "matplotlib"}
HEAVY = {*FIGURES, "numba", "torch", "simpy", "pyarrow", "ray"}
MAIN = "from sim.cli import main; main()"


def loaded(code: str, heavy: set[str], argv: list[str], cwd: Path) -> list[str]:
    """Which of the ``heavy`` modules a fresh interpreter holds after ``code``."""
    program = PROBE.format(argv=argv, code=code, heavy=heavy)
    search = repr([entry for entry in sys.path if entry])
    program = f"import sys\nsys.path[:] = {search}\n{program}"
    done = subprocess.run([sys.executable, "-c", program], cwd=cwd, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()[-1].split()[1:]


def test_importing_the_command_line_is_light(tmp_path: Path) -> None:
    assert loaded("import sim.cli", HEAVY, [], tmp_path) == []


def test_help_is_light(tmp_path: Path) -> None:
    assert loaded(MAIN, HEAVY, ["--help"], tmp_path) == []


def test_plan_is_light(tmp_path: Path) -> None:
    argv = ["plan", "gemma-3-27b", "--available-kv-cache-memory-gib", "20", "--max-model-len", "8192"]
    assert loaded(MAIN, HEAVY | {"numpy"}, argv, tmp_path) == []


@pytest.mark.parametrize("package", ["sim", "workloads", "gpu_check", "gpu_check.__main__"])
def test_importing_a_package_is_light(package: str, tmp_path: Path) -> None:
    assert loaded(f"import {package}", HEAVY, [], tmp_path) == []


def test_a_run_without_figures_draws_nothing(tmp_path: Path) -> None:
    argv = ["run", "toy", "--no-figures", "--out", str(tmp_path / "out")]
    assert loaded(MAIN, FIGURES, argv, tmp_path) == []
