"""Fitting step times to what was measured: points in, coefficients with their errors out.

Measured means of serving runs (:mod:`~sim.calibrate.points`) are simulated by the engine itself
(:mod:`~sim.calibrate.simulate`) and fitted (:mod:`~sim.calibrate.fit`); the result is a section that a scenario can
name as ``step_time: {file: PATH}``.
"""

from __future__ import annotations

from sim.calibrate.base import calibration_base
from sim.calibrate.calibrated import Calibrated, calibrate
from sim.calibrate.nnls import nnls, nnls_absolute
from sim.calibrate.points import Point, read_points

__all__ = ["Calibrated", "Point", "calibrate", "calibration_base", "nnls", "nnls_absolute", "read_points"]
