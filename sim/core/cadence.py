"""What holds prefill back: with ``prefill_schedule_interval`` n it waits until n steps have passed since the last one.

A held step carries no prefill at all: neither the next chunk of a running prompt nor an admission with more than one
token left to compute. The hold is off while the waiting queue was not drained by the last step that was free to admit.
vllm 0.33.0 v1/core/sched/scheduler.py:860-890, :1590 and :1605-1620.
"""

from __future__ import annotations

from sim.core._jit import i64, inlined
from sim.core.output import STEPS
from sim.core.state import (
    CAPACITY_BOUND,
    LAST_PREFILL_STEP,
    NUM_DEFERRED,
    NUM_LOADING,
    NUM_RUNNING,
    NUM_WAITING,
    PREFILLING,
    RUNNING_LIST,
    Plan,
    Queues,
    State,
)


@inlined
def holds_prefill(plan: Plan, state: State) -> bool:
    """Whether this schedule() must leave all prefill for a later step."""
    counters, queues = state.output.counters, state.queues
    if plan.prefill_schedule_interval <= 1 or queues.counters[CAPACITY_BOUND] != 0:
        return False
    if counters[STEPS] + 1 - queues.counters[LAST_PREFILL_STEP] >= plan.prefill_schedule_interval:
        return False
    for i in range(queues.counters[NUM_RUNNING]):
        if state.requests[queues.lists[RUNNING_LIST, i], PREFILLING] == 0:
            return True
    return False


@inlined
def note_admissions(queues: Queues, held: bool) -> None:
    """After the waiting queue was scanned: whether requests are left in it that the scan did not skip."""
    counters = queues.counters
    if not held:
        counters[CAPACITY_BOUND] = 1 if counters[NUM_WAITING] > counters[NUM_DEFERRED] else 0


@inlined
def note_prefill(state: State, tokens: int) -> None:
    """After a step that carried prefill: the interval starts anew from it."""
    executed = state.output.counters[STEPS] + (1 if tokens > 0 else 0)
    state.queues.counters[LAST_PREFILL_STEP] = executed


@inlined
def prefill_threshold(plan: Plan, queues: Queues) -> int:
    """Most tokens of a prompt per step; 0 = no limit, as for a request that is alone.

    Adaptive: never less than an even share of the budget (vllm 0.33.0 v1/core/sched/scheduler.py:838-858).
    """
    eligible = queues.counters[NUM_RUNNING] + queues.counters[NUM_WAITING] + queues.counters[NUM_LOADING]
    threshold = plan.long_prefill_token_threshold
    if eligible <= 1:
        return 0
    if plan.long_prefill_token_threshold_adaptive:
        threshold = max(threshold, i64(plan.max_num_batched_tokens // eligible))
    return threshold
