"""How long a step takes: constant, additive or from a measured table, as costs for the core, with how far to trust it.

A scenario's ``step_time`` section, or the file it names, holds one of three kinds (schema and reader:
:mod:`sim.scenario.steps`). Beside its numbers it may hold ``origin``: what they were measured on and how
large the error was.
"""

from __future__ import annotations

from sim.step_time.constant import NO_GRID, constant_price
from sim.step_time.step_time import StepTime, make_step_time

__all__ = ["NO_GRID", "StepTime", "constant_price", "make_step_time"]
