"""The blocks of the pool by group at each step: live, cached, and the slots of live blocks that no token fills yet.

    pool   | live in group 0 | live in group 1 | cached, group 0 | cached, group 1 | free, without a key |
    live   | ... 16 | 17 .. 27 . . . . . |      a request of 28 tokens: 4 slots of its second block are rounding

A block is *live* while a table names it, in the group it was taken for, shared ones once; *cached* while it is free and
still has a key. Counted where blocks change hands (``block_pool.py``), read here when a step is recorded. Only in runs
that are explained; the arrays are empty otherwise.
"""

from __future__ import annotations

from sim.core._jit import apart, i64, inlined
from sim.core.output import SHARE_CACHED, SHARE_LIVE, SHARE_ROUNDING
from sim.core.state import (
    CACHED,
    CIRCULAR,
    COMPUTED,
    CROSS,
    HELD_CACHED,
    HELD_LIVE,
    LENGTH,
    MAMBA_ALIGN,
    MAMBA_NONE,
    NUM_RUNNING,
    ROW,
    RUNNING_LIST,
    Plan,
    State,
)


@apart
def record_shares(plan: Plan, state: State, step: int) -> None:
    """Write the counts of every group into row ``step``; a state fills its block, so that nothing is rounded there."""
    for g in range(plan.block_size.size):
        row = state.output.shares[step, g]
        row[SHARE_LIVE] = state.pool.held[g, HELD_LIVE]
        row[SHARE_CACHED] = state.pool.held[g, HELD_CACHED]
        row[SHARE_ROUNDING] = 0
        if plan.kind[g] not in (MAMBA_ALIGN, MAMBA_NONE, CIRCULAR, CROSS):
            row[SHARE_ROUNDING] = _rounding(plan, state, g)


@inlined
def _rounding(plan: Plan, state: State, group: int) -> int:
    """Slots of a group's tables past the tokens that running requests have computed or hit."""
    size = plan.block_size[group]
    slots = 0
    for i in range(state.queues.counters[NUM_RUNNING]):
        request = state.requests[state.queues.lists[RUNNING_LIST, i]]
        marks = state.tables.marks[request[ROW], group]
        filled = max(i64(request[COMPUTED]), i64(marks[CACHED]) * size)
        slots += max(i64(marks[LENGTH]) * size - filled, 0)
    return i64(slots)
