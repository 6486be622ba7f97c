"""Preemption: whose blocks are taken when a running request finds none, and what becomes of it.

vllm 0.33.0 v1/core/sched/scheduler.py:950-1010 and :1799.
"""

from __future__ import annotations

from sim.core._jit import apart, i64, inlined
from sim.core.cross import give_back
from sim.core.kv_cache_manager import free
from sim.core.output import PREEMPTION_COUNT
from sim.core.queues import push_preempted
from sim.core.state import (
    ARRIVAL,
    BATCH_POSITION,
    COMPUTED,
    D_PREEMPTED,
    D_PREEMPTED_FOR,
    DROPS_STALE,
    IN_FLIGHT,
    KV_PRODUCER,
    NUM_PREEMPTED,
    NUM_RUNNING,
    PLACEHOLDERS,
    PREEMPTED,
    PREEMPTIONS,
    PRIORITY,
    RUNNING_LIST,
    SPEC,
    STALE,
    STATUS,
    Plan,
    State,
)


@inlined
def victim_place(plan: Plan, state: State) -> int:
    """Place in the running list of the request to preempt: the last one, or the least urgent, latest to arrive."""
    queues = state.queues
    worst = queues.counters[NUM_RUNNING] - 1
    if plan.priority_policy:
        worst = 0
        for i in range(1, queues.counters[NUM_RUNNING]):
            a, b = queues.lists[RUNNING_LIST, i], queues.lists[RUNNING_LIST, worst]
            later = state.requests[a, ARRIVAL] > state.requests[b, ARRIVAL]
            if state.requests[a, PRIORITY] > state.requests[b, PRIORITY] or (
                state.requests[a, PRIORITY] == state.requests[b, PRIORITY] and later
            ):
                worst = i
    return i64(worst)


@apart
def preempt(plan: Plan, state: State, place: int, wanted_by: int) -> None:
    """Take the request at a place of the running list off the machine; it will compute everything again.

    ``wanted_by``: the slot whose request is short of blocks, the victim's own perhaps; -1: a reset takes it off.

    Outputs of its batches in flight are still delivered, but are stale: they do not move its counters.
    """
    queues = state.queues
    slot = i64(queues.lists[RUNNING_LIST, place])
    for i in range(place, queues.counters[NUM_RUNNING] - 1):
        queues.lists[RUNNING_LIST, i] = queues.lists[RUNNING_LIST, i + 1]
    queues.counters[NUM_RUNNING] -= 1
    free(plan, state, slot)
    request = state.requests[slot]
    give_back(request, queues.counters)
    request[STATUS] = PREEMPTED
    request[COMPUTED] = 0
    if request[STALE] == 0:
        request[DROPS_STALE] = 0
    if plan.kv_role == KV_PRODUCER:  # its blocks could not be sent any more
        request[DROPS_STALE] = 1
    request[STALE] = request[IN_FLIGHT]
    request[PLACEHOLDERS] = 0
    request[SPEC] = 0
    request[PREEMPTIONS] += 1
    request[BATCH_POSITION] = -1
    push_preempted(state.requests, queues, slot, plan.priority_policy)
    queues.decided[queues.counters[NUM_PREEMPTED], D_PREEMPTED] = slot
    queues.decided[queues.counters[NUM_PREEMPTED], D_PREEMPTED_FOR] = wanted_by
    queues.counters[NUM_PREEMPTED] += 1
    state.output.counters[PREEMPTION_COUNT] += 1
