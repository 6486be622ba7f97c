"""What a hit would be if nothing were dropped, asked of the look-up itself at every admission of random runs.

Run as a module with NUMBA_DISABLE_JIT=1, it looks into each admission between look-up and explanation, and prints what
differs from the tokens said to be lost to the drop, then whether many admissions were looked at, and many lost some.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

from sim.core import admission, lost_hits
from sim.core.coordinator import longest_hit
from sim.core.seen import EAGLE_DROP, L_LOST, L_SEEN, LOST_ROWS, REPLAY
from sim.core.state import NUM_TOKENS, Plan, State
from tests.core.drafted_run import lost_rows
from tests.oracle.cases import draft_case


class Witness:
    """Stands in for the core's explanation of a hit, and asks once more after it; counts admissions and losses."""

    def __init__(self) -> None:
        self.asked = 0
        self.lost = 0
        self.differing: list[str] = []

    def __call__(self, plan: Plan, state: State, slot: int, hit: int) -> None:
        """Explain a hit and compare."""
        count = int(state.seen.counters[LOST_ROWS])
        lost_hits.explain_hit(plan, state, slot, hit)
        if not plan.drops_last_block or state.seen.counters[LOST_ROWS] == count:
            return
        row = state.seen.lost[count]
        said = int(row[L_LOST + EAGLE_DROP] + row[L_LOST + REPLAY])
        undropped = min(_undropped(plan, state, state.requests[slot]), int(row[L_SEEN]))
        if said != max(undropped - hit, 0):
            self.differing.append(f"hit {hit}, undropped {undropped}, said {said}: {row.tolist()}")
        self.asked += 1
        self.lost += said > 0


def _undropped(plan: Plan, state: State, request: Any) -> int:
    """Tokens a look-up without drops finds; what it notes on the way is put back."""
    noted, missed = state.tables.blocks[-1].copy(), state.queues.missed.copy()
    free = plan._replace(drops=np.zeros_like(plan.drops))
    most = request[NUM_TOKENS] - 1
    found, _ = longest_hit(free, state.cache, state.spans, request, state.tables, most, state.queues.missed)
    state.tables.blocks[-1], state.queues.missed[:] = noted, missed
    return int(found)


def main() -> None:
    """A hundred random configurations with drafts."""
    witness = Witness()
    vars(admission)["explain_hit"] = witness
    for index in range(100):
        lost_rows(draft_case(7, index), 150)
    sys.stdout.write("".join(f"{line}\n" for line in witness.differing))
    sys.stdout.write(f"{witness.asked > 100} {witness.lost > 20}\n")


if __name__ == "__main__":
    main()
