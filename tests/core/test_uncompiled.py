"""The same code as plain Python: NUMBA_DISABLE_JIT=1 changes how long it takes and nothing else."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.core.logged_run import logged

ROOT = Path(__file__).resolve().parents[2]


def in_plain_python(*flags: str) -> subprocess.CompletedProcess[str]:
    """The runs of ``logged_run.py`` in a process that compiles nothing."""
    search = os.pathsep.join([*filter(None, sys.path), str(ROOT)])
    return subprocess.run(
        [sys.executable, *flags, "-m", "tests.core.logged_run"],
        env={**os.environ, "NUMBA_DISABLE_JIT": "1", "PYTHONPATH": search},
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )


def test_plain_python_takes_the_same_decisions() -> None:
    """Keys included, which are 64-bit words that wrap around."""
    done = in_plain_python("-W", "ignore")
    assert done.returncode == 0, done.stderr
    assert done.stdout == logged()


def test_plain_python_does_not_warn_of_words_that_wrap_around() -> None:
    done = in_plain_python("-W", "error")
    assert done.returncode == 0, done.stderr
