"""Why a waiting request was not admitted in the step just scheduled: the first of vLLM's conditions that held it back.

The order is that of ``schedule()``: nobody enters in a step that preempted, then places, the budget of tokens, and for
the first in the queue its blocks; whoever stands behind it waits for it (vllm 0.33.0 v1/core/sched/scheduler.py:1055).
"""

from __future__ import annotations

from collections.abc import Sequence

from sim.core.coordinator import blocks_needed
from sim.core.state import (
    BATCH_HEAD,
    BATCH_REQUESTS,
    E_TOKENS,
    ENCODER_TOKENS,
    FREE_BLOCKS,
    NUM_BATCHES,
    NUM_PREEMPTED,
    NUM_TOKENS,
    ORDINAL,
    STALE,
    WAITING_HEAP,
)
from sim.machine import Machine


def why_waiting(machine: Machine, slot: int, ids: Sequence[str]) -> str:
    """One reason in words, without numbers that change from step to step, so that equal reasons are one happening."""
    plan, state = machine.plan, machine.state
    queues = state.queues
    if queues.counters[NUM_PREEMPTED] > 0:
        return "running requests were short of blocks: in a step that preempts nobody is admitted"
    if machine.num_running >= plan.max_num_active_seqs:
        return f"all {plan.max_num_active_seqs:,} places were taken"
    if state.requests[slot, STALE] > 0:
        return "outputs of before its preemption were still in flight"
    batch = int(queues.counters[BATCH_HEAD] + queues.counters[NUM_BATCHES] - 1) % queues.batch.shape[0]
    size = int(queues.batch[batch, BATCH_REQUESTS])
    used = int(queues.entries[batch, :size, E_TOKENS].sum()) + plan.draft_slots * (1 + size)
    if used >= plan.max_num_batched_tokens:
        return f"the step's budget of {plan.max_num_batched_tokens:,} tokens was used up"
    first = int(queues.lists[WAITING_HEAP, 0])
    if first != slot:
        return f"it stood behind {ids[int(state.requests[first, ORDINAL])]}, which was not admitted"
    tokens, encoder = int(state.requests[slot, NUM_TOKENS]), int(state.requests[slot, ENCODER_TOKENS])
    need = int(blocks_needed(plan, state.pool, state.tables, tokens, 0, 0, True, 0, encoder))
    if need > state.pool.counters[FREE_BLOCKS] - plan.watermark_blocks:
        return f"first in the queue, but the pool had too few free blocks for it (up to {need:,} needed without hits)"
    return "first in the queue, but its first chunk did not fit: prefill was held back, or cut where a state is kept"
