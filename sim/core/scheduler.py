"""One call of vLLM's ``schedule()``: running requests first, in order, then waiting ones while all fits.

vllm 0.33.0 v1/core/sched/scheduler.py:794 (schedule), :1799 (preemption), :1845 (after scheduling),
v1/core/sched/async_scheduler.py. A request's true output length is never read here: only commit knows when it ends.
"""

from __future__ import annotations

from sim.core import drafts as drafts_module
from sim.core._jit import i64, inlined
from sim.core.admission import schedule_waiting
from sim.core.batch import append, withdraw
from sim.core.cadence import holds_prefill, note_admissions, note_prefill, prefill_threshold
from sim.core.kv_cache_manager import grow, is_quiet
from sim.core.output import CURRENT_STEP
from sim.core.partial import release_copies
from sim.core.preemption import preempt, victim_place
from sim.core.split import clip_chunk
from sim.core.state import (
    BATCH_HEAD,
    BATCH_POSITION,
    BATCH_REQUESTS,
    CARRIES_PREFILL,
    COMPUTED,
    DRAFTS_USED,
    E_DRAFTS,
    E_SAMPLES,
    E_SLOT,
    E_TOKENS,
    ELIGIBLE_STEP,
    ENCODER_LEFT,
    IN_FLIGHT,
    MAX_TOKENS,
    NUM_ADMITTED,
    NUM_BATCHES,
    NUM_COPIES,
    NUM_FINISHED_IDS,
    NUM_FRESH,
    NUM_PREEMPTED,
    NUM_RUNNING,
    NUM_TOKENS,
    PLACEHOLDERS,
    PREFILLING,
    PROMPT,
    RUNNING_LIST,
    SPEC,
    Int64s,
    Plan,
    Queues,
    State,
)

_take_drafts = drafts_module.take_drafts
_may_use_drafts = drafts_module.may_use_drafts
_leave_lookahead = drafts_module.leave_lookahead


@inlined
def schedule(plan: Plan, state: State) -> int:
    """Fill the next batch of the queue of batches; returns the number of tokens scheduled (0: an empty batch)."""
    queues = state.queues
    count = queues.counters
    state.output.counters[CURRENT_STEP] += 1
    count[NUM_PREEMPTED] = 0
    count[NUM_ADMITTED] = 0
    count[CARRIES_PREFILL] = 0
    count[NUM_FRESH] = 0
    count[ENCODER_LEFT] = plan.encoder_budget
    count[NUM_COPIES] = 0
    count[DRAFTS_USED] = plan.num_lookahead_tokens == 0
    batch = (count[BATCH_HEAD] + count[NUM_BATCHES]) % plan.max_concurrent_batches
    queues.batch[batch, BATCH_REQUESTS] = 0
    threshold = plan.long_prefill_token_threshold
    if threshold > 0:
        threshold = prefill_threshold(plan, queues)
    held = plan.prefill_schedule_interval > 1 and holds_prefill(plan, state)
    left = _schedule_running(plan, state, batch, threshold, held)
    if count[NUM_PREEMPTED] == 0:
        left = schedule_waiting(plan, state, batch, threshold, left, held)
        note_admissions(queues, held)
    if count[NUM_COPIES] > 0:
        release_copies(plan, state)
    size = i64(queues.batch[batch, BATCH_REQUESTS])
    tokens = plan.max_num_batched_tokens - left - plan.draft_slots * (1 + size)
    if count[CARRIES_PREFILL] != 0:
        note_prefill(state, tokens)
    _advance_requests(plan, state.requests, queues, batch, i64(state.output.counters[CURRENT_STEP]))
    count[NUM_FINISHED_IDS] = 0
    return tokens


@inlined
def _running_tokens(request: Int64s, current_step: int, threshold: int, left: int, max_model_len: int) -> int:
    """Tokens a running request may compute in this step; 0 or less: it sits the step out.

    tokens   | prompt and outputs processed | outputs in flight | drafts
    computed |-------------------->|
    next                           |<-- as much of the rest as budget, threshold and max_model_len allow
    """
    placeholders = request[PLACEHOLDERS]
    if placeholders > 0 and request[COMPUTED] + 2 - placeholders >= request[PROMPT] + request[MAX_TOKENS]:
        return 0
    if current_step < request[ELIGIBLE_STEP]:
        return 0
    num_new = request[NUM_TOKENS] + request[SPEC] + placeholders - request[COMPUTED]
    if 0 < threshold < num_new:
        num_new = threshold
    return i64(min(num_new, left, max_model_len - request[COMPUTED] - 1))


@inlined
def _cut(plan: Plan, state: State, slot: int, num_new: int) -> int:
    """Tokens of a running request's chunk that ends where its states and its draft modules want it to; perhaps 0."""
    start = i64(state.requests[slot, COMPUTED])
    if plan.split_block_size > 0:
        num_new = clip_chunk(plan, state, slot, start, num_new)
    if plan.prefill_lookahead > 1:
        num_new = _leave_lookahead(i64(state.requests[slot, NUM_TOKENS]), start, num_new, plan.prefill_lookahead)
    return num_new


@inlined
def _schedule_running(plan: Plan, state: State, batch: int, threshold: int, held: bool) -> int:
    """Schedule running requests in order, preempting others where blocks are short; returns the budget left.

    That is what the next request may take: less than is left where its draft takes a part of its own.

    Nearly all of them decode and need no block in this step. For those the loop makes no call that takes the whole
    state: handing over its arrays costs more than the decision.
    """
    requests, queues = state.requests, state.queues
    current_step = i64(state.output.counters[CURRENT_STEP])
    left = plan.max_num_batched_tokens - plan.draft_slots
    index = 0
    while index < queues.counters[NUM_RUNNING] and left > 0:
        slot = i64(queues.lists[RUNNING_LIST, index])
        request = requests[slot]
        num_new = _running_tokens(request, current_step, threshold, left, plan.max_model_len)
        if plan.split_block_size > 0 or plan.prefill_lookahead > 1:
            num_new = _cut(plan, state, slot, num_new)
        if num_new <= 0 or (held and request[PREFILLING] != 0):
            index += 1
            continue
        fits = is_quiet(request, num_new) and (
            plan.split_block_size == 0 or (num_new == 1 and plan.num_spec_tokens == 0)
        )
        gone = False
        while not (fits or gone):
            fits = grow(plan, state, slot, num_new)
            if not fits:
                place = victim_place(plan, state)
                victim = i64(queues.lists[RUNNING_LIST, place])
                restored = withdraw(state, batch, victim)
                left += restored + plan.draft_slots if restored > 0 else 0
                preempt(plan, state, place, slot)
                if place < index:
                    index -= 1
                gone = victim == slot
        if fits:
            append(requests, queues, batch, slot, num_new, _take_drafts(request, num_new) if request[SPEC] > 0 else 0)
            if request[PREFILLING] != 0:
                queues.counters[CARRIES_PREFILL] = 1
            if plan.asks_for_drafts and _may_use_drafts(request, num_new):
                queues.counters[DRAFTS_USED] = 1
            left -= num_new + plan.draft_slots
            index += 1
        elif not plan.priority_policy:
            break
    return left


@inlined
def _advance_requests(plan: Plan, requests: Int64s, queues: Queues, batch: int, current_step: int) -> None:
    """Count the scheduled tokens as computed, before they are: the next schedule() may run ahead of the GPU.

    A request whose known tokens are all scheduled gets a token from this batch. With async scheduling that token has a
    placeholder, as have the drafts verified with it, and with p pipeline stages the request decodes again p calls later
    at the earliest.
    """
    for i in range(queues.batch[batch, BATCH_REQUESTS]):
        request = requests[queues.entries[batch, i, E_SLOT]]
        request[COMPUTED] += queues.entries[batch, i, E_TOKENS]
        request[IN_FLIGHT] += queues.entries[batch, i, E_TOKENS]
        request[BATCH_POSITION] = -1
        samples = request[COMPUTED] >= request[NUM_TOKENS] + request[PLACEHOLDERS]
        queues.entries[batch, i, E_SAMPLES] = samples
        request[PREFILLING] = 0 if samples else 1
        if samples and plan.async_scheduling:
            request[PLACEHOLDERS] += 1 + abs(queues.entries[batch, i, E_DRAFTS])
            request[SPEC] = plan.num_spec_tokens
            request[ELIGIBLE_STEP] = current_step + plan.pipeline_parallel_size
