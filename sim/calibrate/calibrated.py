"""A calibration from beginning to end, and what is said and written of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from sim.calibrate.fit import Calibration, Fit, named
from sim.calibrate.points import Point
from sim.calibrate.simulate import MEANS, Floats

_ERROR_NAMES = ("ttft", "tpot", "throughput")


@dataclass(frozen=True, slots=True)
class Calibrated:
    """Fitted coefficients, and per point and mean what was measured, simulated with them, and without its kind.

    Arrays are [points, 3] for TTFT (ms), TPOT (ms) and output throughput (tokens/s); NaN where there is nothing.
    """

    points: Sequence[Point]
    fit: Fit
    prior: Mapping[str, float]
    measured: Floats
    simulated: Floats
    left_out: Floats
    origin: Mapping[str, Any]

    def section(self) -> dict[str, Any]:
        """The ``step_time`` section of a scenario, with where it comes from and how far it was off."""
        errors = {
            key: _mean_errors(self.measured, values)
            for key, values in (("in_sample_pct", self.simulated), ("left_out_pct", self.left_out))
        }
        origin = {
            **self.origin,
            "points": len(self.points),
            **{key: value for key, value in errors.items() if value},
            **({"held_at_prior": list(self.fit.held)} if self.fit.held else {}),
            **({"mostly_prior": list(self.fit.weak)} if self.fit.weak else {}),
        }
        return {**self.fit.section(), "origin": origin}


def calibrate(
    base: Mapping[str, Any],
    points: Sequence[Point],
    origin: Mapping[str, Any],
    progress: Callable[[str], None] = lambda _: None,
) -> Calibrated:
    """Fit coefficients to ``points``; ``progress`` hears what is being done.

    Raises InputError where they determine nothing or cannot be simulated.
    """
    calibration = Calibration(base, points, progress=progress)
    fit, rows = calibration.fit()
    values = np.array([calibration.means(point, fit.coefficients) for point in points])
    values[:, 2] = 1 / values[:, 2]
    measured = np.array([[point.measured.get(name, np.nan) for name in MEANS] for point in points])
    scenario = calibration.scenario(points[0], {})
    about = {"model": scenario.model.name, "gpu": scenario.gpu, **origin}
    return Calibrated(points, fit, named(calibration.prior), measured, values, calibration.left_out(rows), about)


def _mean_errors(measured: Floats, values: Floats) -> dict[str, float]:
    off = 100 * np.abs(values / measured - 1)
    return {
        name: round(float(np.nanmean(off[:, column])), 2)
        for column, name in enumerate(_ERROR_NAMES)
        if not np.isnan(off[:, column]).all()
    }
