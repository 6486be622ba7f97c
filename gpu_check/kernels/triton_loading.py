"""Triton, loaded once per process: compiled for a GPU, or interpreted on CPU tensors."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec
from typing import Any, Protocol

SWITCH = "TRITON_INTERPRET"
"""Triton's own environment variable; it is read when a kernel is decorated."""


class Launcher(Protocol):
    """A kernel: indexed by its grid, then called with its arguments."""

    def __getitem__(self, grid: tuple[int, ...]) -> Callable[..., object]:
        """The kernel on this many programs."""


def interpreted() -> bool:
    """Whether Triton's kernels run on the CPU in this process, program by program in NumPy."""
    return os.environ.get(SWITCH) == "1"


def load_kernels(*, on_cpu: bool) -> Any:
    """The module of the kernels (:mod:`gpu_check.kernels.triton_kernel`), for CPU tensors or for a GPU's.

    A process does one of the two: what Triton decorates as it is imported is either compiled or interpreted. Raises
    RuntimeError, with a line for the report, where Triton is missing or was loaded for the other one.
    """
    if find_spec("triton") is None:
        raise RuntimeError("Triton is not installed")
    if on_cpu and "triton" not in sys.modules:
        os.environ[SWITCH] = "1"
    if interpreted() != on_cpu:
        state = "interpreted" if interpreted() else "compiled"
        raise RuntimeError(f"this process has loaded Triton for {state} kernels ({SWITCH})")
    return import_module("gpu_check.kernels.triton_kernel")
