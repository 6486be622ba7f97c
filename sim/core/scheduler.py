"""One call of vLLM's ``schedule()``: running requests first, in order, then waiting ones while all fits.

vllm 0.33.0 v1/core/sched/scheduler.py:794 (schedule), :1799 (preemption), :1845 (after scheduling),
v1/core/sched/async_scheduler.py. A request's true output length is never read here: only commit knows when it ends.
"""

from __future__ import annotations

from sim.core._jit import i64, internal
from sim.core.kv_cache_manager import (
    admit,
    can_admit,
    find_computed,
    free,
    grow,
    is_still_blocked,
    note_blocked,
)
from sim.core.queues import pop, push, push_preempted
from sim.core.state import (
    ARRIVAL,
    BATCH_HEAD,
    BATCH_POSITION,
    BATCH_REQUESTS,
    CACHED_TOKENS,
    COMPUTED,
    CURRENT_STEP,
    D_ADMITTED,
    D_HIT,
    D_PREEMPTED,
    E_SAMPLES,
    E_SLOT,
    E_TOKENS,
    ELIGIBLE_STEP,
    FIRST_SCHEDULED,
    HIT_TOKENS,
    IN_FLIGHT,
    MAX_TOKENS,
    NOW,
    NUM_ADMITTED,
    NUM_BATCHES,
    NUM_FINISHED_IDS,
    NUM_PREEMPTED,
    NUM_RUNNING,
    NUM_SKIPPED,
    NUM_TOKENS,
    NUM_WAITING,
    PLACEHOLDERS,
    PREEMPTED,
    PREEMPTION_COUNT,
    PREEMPTIONS,
    PRIORITY,
    PROMPT,
    QUERY_TOKENS,
    RESUMED_HIT_TOKENS,
    RESUMED_QUERY_TOKENS,
    RUNNING,
    RUNNING_LIST,
    SKIP_CACHE,
    SKIPPED_LIST,
    STALE,
    STATUS,
    WAITING_HEAP,
    Plan,
    State,
)


@internal
def schedule(plan: Plan, state: State) -> int:
    """Fill the next batch of the queue of batches; returns the number of tokens scheduled (0: an empty batch)."""
    queues = state.queues
    count = queues.counters
    state.output.counters[CURRENT_STEP] += 1
    count[NUM_PREEMPTED] = 0
    count[NUM_ADMITTED] = 0
    batch = (count[BATCH_HEAD] + count[NUM_BATCHES]) % plan.max_concurrent_batches
    queues.batch[batch, BATCH_REQUESTS] = 0
    threshold = plan.long_prefill_token_threshold
    if count[NUM_RUNNING] + count[NUM_WAITING] <= 1:
        threshold = 0
    left = _schedule_running(plan, state, batch, threshold)
    if count[NUM_PREEMPTED] == 0:
        left = _schedule_waiting(plan, state, batch, threshold, left)
    _advance_requests(plan, state, batch)
    count[NUM_FINISHED_IDS] = 0
    return plan.max_num_batched_tokens - left


@internal
def _append(state: State, batch: int, slot: int, num_tokens: int) -> None:
    queues = state.queues
    position = queues.batch[batch, BATCH_REQUESTS]
    queues.entries[batch, position, E_SLOT] = slot
    queues.entries[batch, position, E_TOKENS] = num_tokens
    queues.batch[batch, BATCH_REQUESTS] = position + 1
    state.requests[slot, BATCH_POSITION] = position


@internal
def _withdraw(state: State, batch: int, slot: int) -> int:
    """Take a preempted request out of the batch it is already in; returns the tokens given back to the budget."""
    queues = state.queues
    position = state.requests[slot, BATCH_POSITION]
    if position < 0:
        return 0
    restored = i64(queues.entries[batch, position, E_TOKENS])
    size = queues.batch[batch, BATCH_REQUESTS] - 1
    for i in range(position, size):
        queues.entries[batch, i, E_SLOT] = queues.entries[batch, i + 1, E_SLOT]
        queues.entries[batch, i, E_TOKENS] = queues.entries[batch, i + 1, E_TOKENS]
        state.requests[queues.entries[batch, i, E_SLOT], BATCH_POSITION] = i
    queues.batch[batch, BATCH_REQUESTS] = size
    return restored


@internal
def _running_tokens(plan: Plan, state: State, slot: int, threshold: int, left: int) -> int:
    """Tokens a running request may compute in this step; 0 or less: it sits the step out.

    tokens   | prompt and outputs processed | outputs in flight | ...
    computed |-------------------->|
    next                           |<-- as much of the rest as budget, threshold and max_model_len allow
    """
    request = state.requests[slot]
    placeholders = request[PLACEHOLDERS]
    if placeholders > 0 and request[COMPUTED] + 2 - placeholders >= request[PROMPT] + request[MAX_TOKENS]:
        return 0
    if state.output.counters[CURRENT_STEP] < request[ELIGIBLE_STEP]:
        return 0
    num_new = request[NUM_TOKENS] + placeholders - request[COMPUTED]
    if 0 < threshold < num_new:
        num_new = threshold
    return i64(min(num_new, left, plan.max_model_len - request[COMPUTED] - 1))


@internal
def _schedule_running(plan: Plan, state: State, batch: int, threshold: int) -> int:
    """Schedule running requests in order, preempting others where blocks are short; returns the budget left."""
    queues = state.queues
    left = plan.max_num_batched_tokens
    index = 0
    while index < queues.counters[NUM_RUNNING] and left > 0:
        slot = i64(queues.lists[RUNNING_LIST, index])
        num_new = _running_tokens(plan, state, slot, threshold, left)
        if num_new <= 0:
            index += 1
            continue
        fits = grow(plan, state, slot, num_new)
        while not fits:
            place = _victim(plan, state)
            victim = i64(queues.lists[RUNNING_LIST, place])
            left += _withdraw(state, batch, victim)
            _preempt(plan, state, place)
            if place < index:
                index -= 1
            if victim == slot:
                break
            fits = grow(plan, state, slot, num_new)
        if fits:
            _append(state, batch, slot, num_new)
            left -= num_new
            index += 1
        elif not plan.priority_policy:
            break
    return left


@internal
def _victim(plan: Plan, state: State) -> int:
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


@internal
def _preempt(plan: Plan, state: State, place: int) -> None:
    """Take the request at a place of the running list off the machine; it will compute everything again.

    Outputs of its batches in flight are still delivered, but are stale: they do not move its counters.
    """
    queues = state.queues
    slot = i64(queues.lists[RUNNING_LIST, place])
    for i in range(place, queues.counters[NUM_RUNNING] - 1):
        queues.lists[RUNNING_LIST, i] = queues.lists[RUNNING_LIST, i + 1]
    queues.counters[NUM_RUNNING] -= 1
    free(state, slot)
    request = state.requests[slot]
    request[STATUS] = PREEMPTED
    request[COMPUTED] = 0
    request[STALE] = request[IN_FLIGHT]
    request[PLACEHOLDERS] = 0
    request[PREEMPTIONS] += 1
    request[BATCH_POSITION] = -1
    push_preempted(state.requests, queues, slot, plan.priority_policy)
    queues.decided[queues.counters[NUM_PREEMPTED], D_PREEMPTED] = slot
    queues.counters[NUM_PREEMPTED] += 1
    state.output.counters[PREEMPTION_COUNT] += 1


@internal
def _schedule_waiting(plan: Plan, state: State, batch: int, threshold: int, left: int) -> int:
    """Admit waiting requests in order until one does not fit; returns the budget left."""
    queues = state.queues
    count = queues.counters
    count[NUM_SKIPPED] = 0
    while left > 0 and count[NUM_WAITING] > 0 and count[NUM_RUNNING] < plan.max_num_seqs:
        slot = i64(queues.lists[WAITING_HEAP, 0])
        if state.requests[slot, STALE] > 0:
            queues.lists[SKIPPED_LIST, count[NUM_SKIPPED]] = pop(state.requests, queues)
            count[NUM_SKIPPED] += 1
            continue
        others_running = bool(count[NUM_RUNNING] > 0)
        if is_still_blocked(plan, state, slot, others_running):
            break
        hit = find_computed(plan, state, slot)
        num_new = state.requests[slot, NUM_TOKENS] - hit
        if 0 < threshold < num_new:
            num_new = threshold
        if not plan.enable_chunked_prefill and num_new > left:
            break
        num_new = min(num_new, left)
        if not can_admit(plan, state, slot, hit, num_new, others_running):
            note_blocked(plan, state, slot, hit)
            break
        pop(state.requests, queues)
        admit(plan, state, slot, hit, num_new)
        _start(plan, state, batch, slot, hit, num_new)
        left -= num_new
    for i in range(count[NUM_SKIPPED]):
        push(state.requests, queues, i64(queues.lists[SKIPPED_LIST, i]))
    return left


@internal
def _start(plan: Plan, state: State, batch: int, slot: int, hit: int, num_new: int) -> None:
    """Move an admitted request to the end of the running list and into the batch, and count its look-up."""
    queues = state.queues
    request = state.requests[slot]
    queues.lists[RUNNING_LIST, queues.counters[NUM_RUNNING]] = slot
    queues.counters[NUM_RUNNING] += 1
    request[STATUS] = RUNNING
    request[COMPUTED] = hit
    if request[FIRST_SCHEDULED] < 0:
        request[FIRST_SCHEDULED] = state.output.counters[NOW]
        request[CACHED_TOKENS] = hit
    if plan.enable_prefix_caching and request[SKIP_CACHE] == 0:
        resumed = request[PREEMPTIONS] > 0
        state.output.counters[RESUMED_QUERY_TOKENS if resumed else QUERY_TOKENS] += request[NUM_TOKENS]
        state.output.counters[RESUMED_HIT_TOKENS if resumed else HIT_TOKENS] += hit
    queues.decided[queues.counters[NUM_ADMITTED], D_ADMITTED] = slot
    queues.decided[queues.counters[NUM_ADMITTED], D_HIT] = hit
    queues.counters[NUM_ADMITTED] += 1
    _append(state, batch, slot, num_new)


@internal
def _advance_requests(plan: Plan, state: State, batch: int) -> None:
    """Count the scheduled tokens as computed, before they are: the next schedule() may run ahead of the GPU.

    A request whose known tokens are all scheduled gets a token from this batch. With async scheduling that token has a
    placeholder, and with p pipeline stages the request decodes again p calls later at the earliest.
    """
    queues = state.queues
    for i in range(queues.batch[batch, BATCH_REQUESTS]):
        request = state.requests[queues.entries[batch, i, E_SLOT]]
        request[COMPUTED] += queues.entries[batch, i, E_TOKENS]
        request[IN_FLIGHT] += queues.entries[batch, i, E_TOKENS]
        request[BATCH_POSITION] = -1
        samples = request[COMPUTED] >= request[NUM_TOKENS] + request[PLACEHOLDERS]
        queues.entries[batch, i, E_SAMPLES] = samples
        if samples and plan.async_scheduling:
            request[PLACEHOLDERS] += 1
            request[ELIGIBLE_STEP] = state.output.counters[CURRENT_STEP] + plan.pipeline_parallel_size
