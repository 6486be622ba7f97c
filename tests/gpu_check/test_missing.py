"""The GPU check says plainly that it is missing."""

from __future__ import annotations

import subprocess
import sys


def test_it_says_in_one_line_what_is_missing_and_ends_with_2() -> None:
    done = subprocess.run([sys.executable, "-m", "gpu_check"], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.startswith("gpu_check: nothing was checked: ")
    assert len(done.stderr.splitlines()) == 1
