"""Reset of the prefix cache at given times: refused while blocks are in use, unless running requests give theirs back.

    running a, b; waiting c      reset with running requests  ->  waiting a, b, c; nothing cached, all blocks free
                                 reset without                ->  refused, nothing changes

A request taken off for a reset may come back at once: what its batches in flight still give is thrown away, where it
would be delivered late after a preemption. A reset takes effect where an arrival of the same time would.
vllm 0.33.0 v1/core/sched/scheduler.py:3184, v1/core/block_pool.py:822.
"""

from __future__ import annotations

from sim.core._jit import apart, i64
from sim.core.hashing import NO_KEY
from sim.core.kv_events import note_cleared
from sim.core.output import NEXT_RESET, NOW, R_DONE, R_RUNNING, R_TIME
from sim.core.preemption import preempt
from sim.core.seen import note_reset
from sim.core.state import (
    DROPS_STALE,
    FREE_BLOCKS,
    HELD_CACHED,
    NULL_BLOCK,
    NUM_BLOCKS,
    NUM_PREEMPTED,
    NUM_RUNNING,
    RUNNING_LIST,
    SECOND_KEY,
    SPARE_KEY,
    UNUSED_KEY,
    Cache,
    Plan,
    Pool,
    State,
)


@apart
def reset_due(plan: Plan, state: State) -> None:
    """Do the resets whose time has come, and note for each whether it was done."""
    counters, resets = state.output.counters, state.output.resets
    while counters[NEXT_RESET] < resets.shape[0] and resets[counters[NEXT_RESET], R_TIME] <= counters[NOW]:
        reset = resets[counters[NEXT_RESET]]
        counters[NEXT_RESET] += 1
        if reset[R_RUNNING] != 0:
            _take_all_off(plan, state)
        if state.seen.key.size > 0 and _is_unused(state.pool):
            note_reset(state.seen, state.pool.key, i64(state.pool.counters[UNUSED_KEY]))
        reset[R_DONE] = 1 if clear(state.pool, state.cache) else 0


@apart
def _take_all_off(plan: Plan, state: State) -> None:
    """Preempt all running requests, the last one first, so that they come back in order."""
    count = state.queues.counters
    count[NUM_PREEMPTED] = 0
    while count[NUM_RUNNING] > 0:
        slot = state.queues.lists[RUNNING_LIST, count[NUM_RUNNING] - 1]
        preempt(plan, state, count[NUM_RUNNING] - 1, -1)
        state.requests[slot, DROPS_STALE] = 1


@apart
def _is_unused(pool: Pool) -> bool:
    """Whether no block is in use."""
    return bool(pool.counters[FREE_BLOCKS] == pool.counters[NUM_BLOCKS] - 1)


@apart
def clear(pool: Pool, cache: Cache) -> bool:
    """Take all keys off all blocks; False, and nothing is changed, while a block is in use."""
    if not _is_unused(pool):
        return False
    cache.first[:] = NULL_BLOCK
    pool.key[:] = NO_KEY
    pool.links[:, SECOND_KEY] = 0
    pool.counters[UNUSED_KEY] = pool.counters[NUM_BLOCKS]
    pool.counters[SPARE_KEY] = 0
    pool.held[:, HELD_CACHED] = 0
    note_cleared(pool)
    return True
