"""Everything the check measures, in order: kernel, peaks, grid, fit, the scenario's own steps, what windows save."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from gpu_check.kernels.choose import Chosen, choose_kernel
from gpu_check.throughput.axes import Axes
from gpu_check.throughput.body import Body
from gpu_check.throughput.clock import Clock
from gpu_check.throughput.composition import Composition
from gpu_check.throughput.fit import Fit, Floats, fit, predicted_s
from gpu_check.throughput.parts import Part, decode_bandwidth, timed_parts
from gpu_check.throughput.peaks import Peaks, measured_peaks
from gpu_check.throughput.sampling import Entry, sampled_steps
from gpu_check.throughput.saving import Saving, savings
from gpu_check.throughput.work import Bench, cache_bytes
from sim.hardware import Gpu


@dataclass(frozen=True, slots=True)
class Measured:
    """What was measured of a body; ``seconds`` by point of the grid (decodes, context, prefill).

    ``replayed`` are the scenario's steps that were run, with what the simulator predicts for them with the fitted
    coefficients, and what they took; ``counts`` how many steps of each class the scenario has. ``gpu`` is the one whose
    peaks the coefficients are relative to.
    """

    body: Body
    gpu: Gpu
    axes: Axes
    clock: str
    kernel: Chosen
    peaks: Peaks
    seconds: dict[tuple[int, int, int], float]
    parts: list[Part]
    headline: Part | None
    fit: Fit
    replayed: list[Composition]
    predicted_s: Floats
    measured_s: Floats
    counts: dict[str, int]
    savings: list[Saving]


def measure(body: Body, gpu: Gpu, log: Sequence[Entry], axes: Axes, clock: Clock, budget: int) -> Measured:
    """Measure it all on the clock's device, with at most ``budget`` bytes of keys and values at a time."""
    device = clock.device
    kernel = choose_kernel([kind.shape for kind in body.kinds], device)
    peaks = measured_peaks(clock, body.dtype, budget)

    def fits(step: Composition) -> bool:
        return step.pairs <= axes.max_pairs and cache_bytes(body, step) <= budget

    axes = axes.fitted(fits)
    replayed, counts = sampled_steps(log, axes.per_class, fits)
    made_up = axes.steps()
    bench = Bench(body, device, kernel.name, [*made_up.values(), *replayed])
    seconds = {point: clock.measure(bench.step(step)) for point, step in made_up.items()}
    parts = timed_parts(bench, axes, clock)
    took = np.array([clock.measure(bench.step(step)) for step in replayed])
    del bench
    fitted = fit(body, gpu, list(made_up.values()), np.array(list(seconds.values())))
    return Measured(
        body,
        gpu,
        axes,
        clock.described,
        kernel,
        peaks,
        seconds,
        parts,
        decode_bandwidth(body, device, kernel.name, axes, clock, budget),
        fitted,
        replayed,
        predicted_s(fitted.coefficients, body, gpu, replayed),
        took,
        counts,
        savings(body, device, kernel.name, axes, clock, fitted.coefficients, gpu, budget),
    )


def errors_pct(predicted: Floats, measured: Floats) -> dict[str, float]:
    """Mean and median absolute error and mean signed error, in percent of what was measured.

    >>> errors_pct(np.array([1.1, 0.8]), np.array([1.0, 1.0]))["mean"]
    15.0
    """
    relative: Any = 100 * (predicted / measured - 1)
    return {
        "mean": round(float(np.abs(relative).mean()), 6),
        "median": round(float(np.median(np.abs(relative))), 6),
        "bias": round(float(relative.mean()), 6),
    }
