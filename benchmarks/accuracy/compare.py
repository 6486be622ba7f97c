"""Errors of simulated points: fitted to all, with one kind of requests left out, and by coefficients from elsewhere."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from benchmarks.accuracy.measured import Case, base_of
from sim.calibrate.fit import Calibration, Fit
from sim.calibrate.points import Point
from sim.calibrate.simulate import Floats, Sensitivities

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Compared:
    """Percent errors of the points of a group, [points, 3]: TPOT, throughput, TTFT; signed as simulated - measured."""

    cases: list[Case]
    fit: Fit
    fitted: Floats
    left_out: Floats

    @property
    def plain(self) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
        """Which points are not flagged."""
        return np.array([not case.flagged for case in self.cases])


def compare_group(cases: Sequence[Case], known: Sensitivities, say: Say, shipped: Fit | None = None) -> Compared:
    """Simulate every point of a group end to end, with what was fitted to all, and with its kind of requests left out.

    Flagged points take no part in a fit. ``shipped`` coefficients are taken as they are instead of being fitted.
    """
    plain = np.array([not case.flagged for case in cases])
    calibration = Calibration(base_of(*cases[0].group), [case.point for case in cases], known, plain)
    fit, rows = calibration.fit() if shipped is None else (shipped, calibration.rows(shipped.coefficients))
    say(f"{' '.join(cases[0].group)}: {len(cases)} points fitted")
    fitted = [errors(case.point, calibration.means(case.point, fit.coefficients)) for case in cases]
    left_out: list[Floats] = []
    by_kind: dict[tuple[int, int], Fit] = {}
    for case in cases:
        kind = case.point.lengths
        if kind not in by_kind:
            others = np.array([other.point.lengths != kind for other in cases])
            by_kind[kind] = calibration.solve(rows, others)
        left_out.append(errors(case.point, calibration.means(case.point, by_kind[kind].coefficients)))
    say(f"{' '.join(cases[0].group)}: simulated")
    return Compared(list(cases), fit, np.array(fitted), np.array(left_out))


def errors(point: Point, means: Floats) -> Floats:
    """Percent by which TPOT, throughput and TTFT are off.

    Where no throughput was published, that which follows from the two times is compared:
    clients x outputs / (TTFT + (outputs - 1) x TPOT).
    """
    ttft, tpot = means[0] / point.measured["mean_ttft_ms"], means[1] / point.measured["mean_tpot_ms"]
    if "output_throughput" in point.measured:
        throughput = 1 / means[2] / point.measured["output_throughput"]
    else:
        outputs = sum(point.output_len) / 2
        took = means[0] + (outputs - 1) * means[1]
        measured = point.measured["mean_ttft_ms"] + (outputs - 1) * point.measured["mean_tpot_ms"]
        throughput = measured / took
    return 100 * (np.array([tpot, throughput, ttft]) - 1)


def mape(compared: Sequence[Compared], part: str, *, flagged: bool) -> Floats:
    """Mean absolute errors over all points of several groups, with or without the flagged ones."""
    pooled = np.vstack([getattr(group, part)[group.plain | flagged] for group in compared])
    return np.asarray(np.abs(pooled).mean(axis=0), np.float64)
