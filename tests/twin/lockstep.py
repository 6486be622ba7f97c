"""The machine and its twin side by side: the same requests, one step at a time, everything compared."""

from __future__ import annotations

from collections.abc import Sequence

from sim.core.output import (
    ACCEPTED_COUNT,
    DRAFT_COUNT,
    HIT_TOKENS,
    PREEMPTION_COUNT,
    QUERY_TOKENS,
    RESUMED_HIT_TOKENS,
    RESUMED_QUERY_TOKENS,
    VERIFIED_COUNT,
)
from sim.core.state import EVICTED_BLOCKS
from sim.invariants import check_invariants
from tests.twin.ours import Ours
from tests.twin.settings import Ask, Settings
from tests.twin.twin import Twin

ENDLESS = "endless"


class LockStep:
    """Raises AssertionError at the first thing the two do not agree on."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.ours = Ours(settings)
        self.twin = Twin(settings)

    @property
    def now_ns(self) -> int:
        """The clock of both."""
        return self.twin.now_ns

    def submit(self, asks: Sequence[Ask]) -> None:
        """Hand the same requests to both."""
        self.ours.submit(asks)
        self.twin.submit(asks)

    def step(self) -> str:
        """One step of both: what was decided, who finished with which tables, how it ended."""
        expected = self.twin.advance()
        found = self.ours.advance()
        assert found == expected
        assert self.ours.machine.now_ns == self.twin.now_ns
        return expected[0]

    def run(self, most_steps: int = 1500) -> str:
        """Steps until nothing is left to do, or requests preempt each other for ever; checks after each."""
        for _ in range(most_steps):
            reason = self.step()
            self.check()
            if reason != "stepped":
                return reason
        assert self.twin.scheduler.preemptions > most_steps // 100
        return ENDLESS

    def check(self) -> None:
        """Block tables, free queue, records and totals are equal, and the machine does not contradict itself."""
        assert self.ours.tables() == self.twin.tables()
        assert self.ours.free_queue() == self.twin.free_queue()
        self.ours.drain()
        assert self.ours.finished == self.twin.finished
        scheduler = self.twin.scheduler
        counters = self.ours.machine.state.output.counters
        found = [int(counters[i]) for i in (QUERY_TOKENS, HIT_TOKENS, RESUMED_QUERY_TOKENS, RESUMED_HIT_TOKENS)]
        assert found == [*scheduler.looked_up[False], *scheduler.looked_up[True]]
        assert counters[[VERIFIED_COUNT, DRAFT_COUNT, ACCEPTED_COUNT]].tolist() == self.twin.verified
        assert int(counters[PREEMPTION_COUNT]) == scheduler.preemptions
        assert int(self.ours.machine.state.pool.counters[EVICTED_BLOCKS]) == scheduler.manager.pool.evicted
        assert self.ours.machine.resets_done() == self.twin.resets_done
        check_invariants(self.ours.machine)
