"""The Triton kernel compiles for data-centre GPUs, fits their shared memory and loads ahead; no GPU is needed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

SHARED_BYTES = {80: 163 << 10, 90: 227 << 10, 100: 227 << 10}
"""What one program may have on A100, H100 and B200 (CUDA's programming guide, compute capabilities)."""


def test_the_kernel_compiles_for_gpus_that_are_not_here(tmp_path: Path) -> None:
    triton = pytest.importorskip("triton", reason="Triton has no release for this platform")
    if tuple(map(int, triton.__version__.split(".")[:2])) < (3, 9):
        pytest.skip("compiling without a GPU is tried with Triton 3.9 and later, whose interface for it this uses")
    root = Path(__file__).resolve().parents[2]
    done = subprocess.run(
        [sys.executable, "-m", "tests.gpu_check.compile_kernels"],
        cwd=root,
        env={**os.environ, "TRITON_INTERPRET": "0", "TRITON_CACHE_DIR": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found = [json.loads(line) for line in done.stdout.splitlines()]
    assert [kernel["capability"] for kernel in found] == [80, 90, 100, 90]
    for kernel in found:
        assert kernel["machine_code_bytes"] > 0
        assert 0 < kernel["shared_bytes"] <= SHARED_BYTES[kernel["capability"]] // 2  # two programs at a time
        assert kernel["copies_ahead"] > 0
