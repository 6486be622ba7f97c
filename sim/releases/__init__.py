"""What other releases of vLLM would print for the same engine, and other groupings of its layers."""

from __future__ import annotations

from sim.releases.groupings import Grouping, other_groupings
from sim.releases.printed import Printed, as_printed, changes_between, release_named

__all__ = ["Grouping", "Printed", "as_printed", "changes_between", "other_groupings", "release_named"]
