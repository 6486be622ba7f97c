"""The accuracy table: errors of all groups, pooled, and of the runs that nothing was fitted to."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from benchmarks.accuracy.compare import Compared, Say, compare_group, errors, mape
from benchmarks.accuracy.measured import (
    OPENLOOP_BASE,
    Case,
    base_of,
    inferencex_cases,
    model_of,
    nebius_cases,
    openloop_cases,
)
from sim.calibrate.fit import Calibration, Fit, named
from sim.calibrate.points import Point
from sim.calibrate.simulate import Floats, Sensitivities, Served, point_scenario, serve
from sim.hardware import find_gpu
from sim.step_time.additive import COEFFICIENTS
from sim.step_time.fitted import fitted

FITTED_RATE = 6.0
"""Requests per second of the one open-loop run that coefficients are fitted to; the other four are left out."""


@dataclass(frozen=True, slots=True)
class Elsewhere:
    """Runs that took no part in any fit: the sweep, its point at the memory limit, and the open-loop runs.

    ``sweep`` is [points, 3] percent of TPOT, throughput, TTFT; ``openloop`` per rate percent of E2E, TPOT, TTFT.
    """

    sweep: Floats
    concurrency: list[int]
    limit: Served
    preemptions: float
    openloop: dict[float, Floats]


def compare_all(say: Say, *, refit: bool = False) -> list[Compared]:
    """All groups of InferenceX points, simulated with the shipped coefficients, or fitted anew."""
    known = Sensitivities()
    groups: dict[tuple[str, str], list[Case]] = {}
    for case in inferencex_cases():
        groups.setdefault(case.group, []).append(case)
    return [compare_group(cases, known, say, None if refit else shipped_fit(*group)) for group, cases in groups.items()]


def shipped_fit(file: str, gpu: str) -> Fit:
    """The coefficients that the simulator ships for a group."""
    section = fitted(model_of(file), find_gpu(gpu), COEFFICIENTS)
    assert section is not None, f"nothing is shipped for {file} on {gpu}"
    return Fit(np.array([section[name] for name in COEFFICIENTS]), (), ())


def compare_elsewhere(groups: Sequence[Compared]) -> Elsewhere:
    """The Nebius sweep with what InferenceX points gave for gpt-oss on H200, and Qwen3-14B fitted at one rate."""
    runs, off, rows = [], [], nebius_cases()
    section = next(group.fit.section() for group in groups if group.cases[0].group == rows[0][0].group)
    for case, _ in rows:
        runs.append(serve(point_scenario(base_of(*case.group), case.point, section)))
        off.append(errors(case.point, runs[-1].means))
    return Elsewhere(
        np.array(off),
        [case.point.concurrency or 0 for case, _ in rows],
        runs[-1],
        float(rows[-1][1]["preemptions"]),
        _openloop(),
    )


def _openloop() -> dict[float, Floats]:
    cases = openloop_cases()
    known = next(point for rate, point, _ in cases if rate == FITTED_RATE)
    fit, _ = Calibration(OPENLOOP_BASE, [known]).fit()
    section = {"kind": "additive", **named(fit.coefficients)}
    return {rate: _openloop_errors(point, row, section) for rate, point, row in cases}


def _openloop_errors(point: Point, row: Mapping[str, str], section: Mapping[str, object]) -> Floats:
    means = serve(point_scenario(OPENLOOP_BASE, point, section)).means
    outputs = point.output_len[0]
    e2e = means[0] + (outputs - 1) * means[1]
    wanted = [float(row[name]) for name in ("e2e_mean", "tpot_mean", "ttft_mean")]
    return 100 * (np.array([e2e, means[1], means[0]]) / wanted - 1)


def accuracy_lines(groups: Sequence[Compared], elsewhere: Elsewhere) -> Iterator[str]:
    """The table, line by line."""
    yield f"{'mean absolute error in %':<44}{'points':>6}{'TPOT':>8}{'throughput':>12}{'TTFT':>8}"
    for group in groups:
        file, gpu = group.cases[0].group
        yield _line(f"{file} on {gpu}, fitted", int(group.plain.sum()), mape([group], "fitted", flagged=False))
        yield _line("  one kind of requests left out", int(group.plain.sum()), mape([group], "left_out", flagged=False))
    points = sum(len(group.cases) for group in groups)
    plain = sum(int(group.plain.sum()) for group in groups)
    for part, label in (("fitted", "all, fitted"), ("left_out", "all, one kind of requests left out")):
        yield _line(label, plain, mape(groups, part, flagged=False))
        yield _line("  flagged outliers included", points, mape(groups, part, flagged=True))
    mean = np.abs(elsewhere.sweep).mean(axis=0)
    yield _line("gpt-oss-120b, H200 to the memory limit, unseen", len(elsewhere.sweep), mean)
    for clients, row in zip(elsewhere.concurrency, elsewhere.sweep, strict=True):
        yield f"  {f'{clients} clients, off by':<48}{row[0]:>+8.1f}{row[1]:>+12.1f}{row[2]:>+8.1f}"
    run = elsewhere.limit
    yield (
        f"  at the limit: {run.preemptions} preemptions (measured {elsewhere.preemptions:.0f}), "
        f"{run.peak_blocks / run.num_blocks:.1%} of the pool at the peak (measured 100 %)"
    )
    yield f"{'Qwen3-14B, H100, open loop, off by':<50}{'TPOT':>8}{'E2E':>12}{'TTFT':>8}"
    for rate, (e2e, tpot, ttft) in elsewhere.openloop.items():
        label = f"{rate:g} requests/s" + (", fitted" if rate == FITTED_RATE else "")
        yield f"  {label:<48}{tpot:>+8.1f}{e2e:>+12.1f}{ttft:>+8.1f}"


def _line(label: str, points: int, values: Floats) -> str:
    return f"{label:<46}{points:>4}{values[0]:>8.1f}{values[1]:>12.1f}{values[2]:>8.1f}"
