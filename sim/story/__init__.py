"""What can be watched step by step: the life of one request, and what every block of a small pool does."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from sim.machine import Machine
from sim.story.block_map import BlockMap
from sim.story.watch import RequestWatch

__all__ = ["BlockMap", "RequestWatch", "Watcher"]


class Watcher(Protocol):
    """Who looks at the machine after every schedule() that scheduled something, before its outputs are processed."""

    def see(self, machine: Machine, ids: Sequence[str]) -> None:
        """Look; ``ids`` are the names of the requests by their ordinal."""
