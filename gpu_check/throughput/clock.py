"""How long work takes on a device: warmed up, repeated, the median."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from statistics import median
from typing import Any

Work = Callable[[], object]


@dataclass(frozen=True, slots=True)
class Clock:
    """Times work on ``device``: at least ``least`` times, and on until ``seconds`` are spent or ``most`` times.

    On a GPU a pair of CUDA events stands around each run, and between runs a buffer larger than the L2 cache is
    written, so that nothing is found there; launches are not waited for, so that their cost shows only where the GPU is
    faster. On a CPU the wall clock is read, and caches are left as they are.
    """

    device: Any
    seconds: float = 0.2
    least: int = 3
    most: int = 30

    @property
    def described(self) -> str:
        """How times were taken, for the report."""
        if self.device.type == "cuda":
            return "CUDA events, medians, L2 flushed before each run"
        return "wall clock, medians, caches not flushed"

    def measure(self, work: Work) -> float:
        """The median time of ``work`` in seconds, after one run that is not counted."""
        return self._on_gpu(work) if self.device.type == "cuda" else self._on_cpu(work)

    def _repeats(self, once: float) -> int:
        return max(self.least, min(self.most, int(self.seconds / max(once, 1e-6))))

    def _on_cpu(self, work: Work) -> float:
        start = time.perf_counter()
        work()
        repeats = self._repeats(time.perf_counter() - start)
        times = []
        for _ in range(repeats):
            start = time.perf_counter()
            work()
            times.append(time.perf_counter() - start)
        return median(times)

    def _on_gpu(self, work: Work) -> float:
        import torch

        work()  # compiles
        torch.cuda.synchronize(self.device)
        start = time.perf_counter()
        work()
        torch.cuda.synchronize(self.device)
        repeats = self._repeats(time.perf_counter() - start)
        cache = torch.empty(_cache_bytes(self.device), dtype=torch.uint8, device=self.device)
        events = [[torch.cuda.Event(enable_timing=True) for _ in range(2)] for _ in range(repeats)]
        for before, after in events:
            cache.zero_()
            before.record()
            work()
            after.record()
        torch.cuda.synchronize(self.device)
        return float(median(before.elapsed_time(after) for before, after in events)) / 1e3


def _cache_bytes(device: Any) -> int:
    """Twice the L2 cache; 256 MiB where torch does not tell its size."""
    import torch

    return 2 * int(getattr(torch.cuda.get_device_properties(device), "L2_cache_size", 128 << 20))
