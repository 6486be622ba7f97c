"""The largest load, the smallest memory or the fewest replicas that meet given targets."""

from __future__ import annotations

from sim.search.knobs import KNOBS, Knob, knob_of
from sim.search.search import REFUSED, Probe, find_limit
from sim.search.targets import Target, parse_targets

__all__ = ["KNOBS", "REFUSED", "Knob", "Probe", "Target", "find_limit", "knob_of", "parse_targets"]
