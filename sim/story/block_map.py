"""What every block of a small pool was doing at each step: the picture of block id against time.

Recorded step by step by looking at the pool, which costs as much as the pool is large: only for pools and runs a person
can look at.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from sim.core.hashing import NO_KEY
from sim.core.state import NUM_BLOCKS
from sim.machine import Machine

FREE, CACHED = -2, -1
"""Codes of blocks that no request names: empty, or still to be hit. Others are the number of a KV cache group."""

MAX_BLOCKS, MAX_STEPS = 4096, 4096
"""Larger pools are not recorded, longer runs only up to here."""


class BlockMap:
    """Rows of block codes, one per step, with the time of each; empty for a pool that is too large."""

    def __init__(self) -> None:
        self._rows: list[NDArray[np.int8]] = []
        self._times: list[float] = []

    @property
    def codes(self) -> NDArray[np.int8]:
        """[steps, blocks] a code above, or the group of the request that holds the block."""
        return np.stack(self._rows) if self._rows else np.zeros((0, 0), np.int8)

    @property
    def times_s(self) -> NDArray[np.float64]:
        """[steps] when each step was scheduled."""
        return np.array(self._times)

    def see(self, machine: Machine, ids: Sequence[str]) -> None:  # noqa: ARG002  (a watcher's signature)
        """Record the step just scheduled."""
        pool = machine.state.pool
        count = int(pool.counters[NUM_BLOCKS])
        if count > MAX_BLOCKS or len(self._rows) == MAX_STEPS:
            return
        row = np.where(pool.key[:count] != NO_KEY, CACHED, FREE).astype(np.int8)
        for slot in machine.running_slots():
            for group, table in enumerate(machine.block_table(slot)):
                row[[block for block in table if block]] = group
        self._rows.append(row)
        self._times.append(machine.now_ns / 1e9)
