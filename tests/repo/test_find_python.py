"""The script that picks a Python takes one that fits and says what is wrong with one that does not."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.repo.tree import ROOT

SCRIPT = str(ROOT / ".ci" / "find-python")


def stand_in(folder: Path, name: str, complaint: str) -> Path:
    """An executable that answers as an unfit Python would."""
    path = folder / name
    path.write_text(f"#!/bin/sh\necho '{complaint}' >&2\nexit 1\n", encoding="utf-8")
    path.chmod(0o755)
    return path


def test_this_python_fits() -> None:
    done = subprocess.run([SCRIPT, sys.executable], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout.strip()) == (0, sys.executable)


def test_an_unfit_python_is_named_with_its_fault(tmp_path: Path) -> None:
    old = stand_in(tmp_path, "python3", "is Python 3.9")
    done = subprocess.run([SCRIPT, str(old)], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert f"{old} is Python 3.9; install one, or name one: make demo PYTHON=" in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_no_python_at_all() -> None:
    done = subprocess.run([SCRIPT, "no-such-python"], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "none of no-such-python is on the PATH" in done.stderr
