"""What windows save: a decoding step as the model is, and with all its layers full, at equal context."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from gpu_check.throughput.axes import Axes
from gpu_check.throughput.body import Body, all_full
from gpu_check.throughput.clock import Clock
from gpu_check.throughput.composition import made_up
from gpu_check.throughput.fit import predicted_s
from gpu_check.throughput.work import Bench, cache_bytes
from sim.hardware import Gpu


@dataclass(frozen=True, slots=True)
class Saving:
    """Seconds of a step of ``batch`` decoding requests: measured and simulated, as the model is and all full."""

    batch: int
    context: int
    measured_s: float
    measured_full_s: float
    simulated_s: float
    simulated_full_s: float

    @property
    def measured_pct(self) -> float:
        """Share of the full step's time that the windows save, measured."""
        return 100 * (1 - self.measured_s / self.measured_full_s)

    @property
    def simulated_pct(self) -> float:
        """The same by the simulator."""
        return 100 * (1 - self.simulated_s / self.simulated_full_s)


def savings(
    body: Body,
    device: Any,
    kernel: str,
    axes: Axes,
    clock: Clock,
    coefficients: Mapping[str, float],
    gpu: Gpu,
    budget: int,
) -> list[Saving]:
    """One comparison per context that fits; none where no layer has a window."""
    if not any(kind.shape.window or kind.shape.chunk for kind in body.kinds):
        return []
    full = all_full(body)
    steps = [made_up(axes.saving_batch, context, 0) for context in axes.contexts]
    steps = [step for step in steps if cache_bytes(full, step) + cache_bytes(body, step) <= budget]
    if not steps:
        return []
    times = []
    for which in (body, full):
        bench = Bench(which, device, kernel, steps)
        times.append([clock.measure(bench.step(step)) for step in steps])
    times += [predicted_s(coefficients, which, gpu, steps).tolist() for which in (body, full)]
    return [
        Saving(len(step.news), step.starts[0], *of_step)
        for step, of_step in zip(steps, zip(*times, strict=True), strict=True)
    ]
