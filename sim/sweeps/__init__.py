"""Many runs of one scenario: grids, lists and zipped keys, on local cores or on Ray, kept point by point."""

from __future__ import annotations

from sim.sweeps.journal import Journal
from sim.sweeps.point import Point, Row, Search, run_point
from sim.sweeps.spec import Sweep, read_sweep
from sim.sweeps.workers import here, on_cores, on_ray

__all__ = ["Journal", "Point", "Row", "Search", "Sweep", "here", "on_cores", "on_ray", "read_sweep", "run_point"]
