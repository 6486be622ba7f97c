"""What the device does at best: bytes copied and operations per second, measured."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from gpu_check.throughput.clock import Clock

COPY_BYTES = {"cuda": 2 << 30, "cpu": 256 << 20}
"""Size of the array that is copied: many times the last cache."""
MATRIX = {"cuda": 8192, "cpu": 1024}
"""Rows and columns of the square matrices that are multiplied."""


@dataclass(frozen=True, slots=True)
class Peaks:
    """Bytes per second of a copy, those read and those written counted (as STREAM does), and operations per second."""

    copy_bytes_per_s: float
    flops: float


def measured_peaks(clock: Clock, dtype: Any, most_bytes: int) -> Peaks:
    """Copy and multiply on the clock's device, in arrays that together take at most ``most_bytes``."""
    size = min(COPY_BYTES[clock.device.type], most_bytes // 4)
    return Peaks(_copied(clock, size), _multiplied(clock, dtype, MATRIX[clock.device.type]))


def _copied(clock: Clock, size: int) -> float:
    import torch

    source = torch.ones(size // 4, dtype=torch.float32, device=clock.device)
    target = torch.empty_like(source)
    return 2.0 * size / clock.measure(lambda: target.copy_(source))


def _multiplied(clock: Clock, dtype: Any, n: int) -> float:
    import torch

    a, b = (torch.randn(n, n, device=clock.device).to(dtype) for _ in range(2))
    return 2 * n**3 / clock.measure(lambda: a @ b)
