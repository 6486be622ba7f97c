"""Time outside the machine: arrivals, clients, sessions and replicas as SimPy processes around the compiled core."""

from __future__ import annotations

from sim.engine.disaggregated import DisaggregatedFleet
from sim.engine.engine import WINDOW, Engine
from sim.engine.fleet import Fleet, Part

__all__ = ["WINDOW", "DisaggregatedFleet", "Engine", "Fleet", "Part"]
