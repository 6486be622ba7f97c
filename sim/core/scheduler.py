"""One call of vLLM's ``schedule()``: running requests first, in order, then waiting ones while all fits.

vllm 0.33.0 v1/core/sched/scheduler.py:794 (schedule), :1799 (preemption), :1845 (after scheduling),
v1/core/sched/async_scheduler.py. A request's true output length is never read here: only commit knows when it ends.
"""

from __future__ import annotations

from sim.core._jit import i64, inlined, internal
from sim.core.cadence import holds_prefill, note_admissions, note_prefill, prefill_threshold
from sim.core.cross import fits_step, give_back, take_in
from sim.core.kv_cache_manager import (
    admit,
    can_admit,
    find_computed,
    grow,
    is_quiet,
    is_still_blocked,
    note_blocked,
)
from sim.core.lost_hits import explain_hit
from sim.core.partial import release_copies
from sim.core.preemption import preempt, victim_place, withdraw
from sim.core.queues import pop, push
from sim.core.replay import num_replayed
from sim.core.split import clip_chunk
from sim.core.state import (
    BATCH_HEAD,
    BATCH_POSITION,
    BATCH_REQUESTS,
    CACHED_TOKENS,
    CARRIES_PREFILL,
    COMPUTED,
    CURRENT_STEP,
    D_ADMITTED,
    D_HIT,
    DEFERRED,
    DROPS_STALE,
    E_SAMPLES,
    E_SLOT,
    E_TOKENS,
    ELIGIBLE_STEP,
    ENCODER_LEFT,
    FIRST_SCHEDULED,
    HIT_TOKENS,
    IN_FLIGHT,
    MAX_TOKENS,
    NOW,
    NUM_ADMITTED,
    NUM_BATCHES,
    NUM_COPIES,
    NUM_DEFERRED,
    NUM_FINISHED_IDS,
    NUM_FRESH,
    NUM_PREEMPTED,
    NUM_RUNNING,
    NUM_SKIPPED,
    NUM_TOKENS,
    NUM_WAITING,
    PLACEHOLDERS,
    PREEMPTIONS,
    PREFILLING,
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
    Int64s,
    Plan,
    Queues,
    State,
)


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
    batch = (count[BATCH_HEAD] + count[NUM_BATCHES]) % plan.max_concurrent_batches
    queues.batch[batch, BATCH_REQUESTS] = 0
    threshold = plan.long_prefill_token_threshold
    if threshold > 0:
        threshold = prefill_threshold(plan, queues)
    held = plan.prefill_schedule_interval > 1 and holds_prefill(plan, state)
    left = _schedule_running(plan, state, batch, threshold, held)
    if count[NUM_PREEMPTED] == 0:
        left = _schedule_waiting(plan, state, batch, threshold, left, held)
        note_admissions(queues, held)
    if count[NUM_COPIES] > 0:
        release_copies(plan, state)
    tokens = plan.max_num_batched_tokens - left
    if count[CARRIES_PREFILL] != 0:
        note_prefill(state, tokens)
    _advance_requests(plan, state.requests, queues, batch, i64(state.output.counters[CURRENT_STEP]))
    count[NUM_FINISHED_IDS] = 0
    return tokens


@inlined
def _append(requests: Int64s, queues: Queues, batch: int, slot: int, num_tokens: int) -> None:
    """Put a request into the batch being scheduled."""
    position = queues.batch[batch, BATCH_REQUESTS]
    queues.entries[batch, position, E_SLOT] = slot
    queues.entries[batch, position, E_TOKENS] = num_tokens
    queues.batch[batch, BATCH_REQUESTS] = position + 1
    requests[slot, BATCH_POSITION] = position


@inlined
def _running_tokens(request: Int64s, current_step: int, threshold: int, left: int, max_model_len: int) -> int:
    """Tokens a running request may compute in this step; 0 or less: it sits the step out.

    tokens   | prompt and outputs processed | outputs in flight | ...
    computed |-------------------->|
    next                           |<-- as much of the rest as budget, threshold and max_model_len allow
    """
    placeholders = request[PLACEHOLDERS]
    if placeholders > 0 and request[COMPUTED] + 2 - placeholders >= request[PROMPT] + request[MAX_TOKENS]:
        return 0
    if current_step < request[ELIGIBLE_STEP]:
        return 0
    num_new = request[NUM_TOKENS] + placeholders - request[COMPUTED]
    if 0 < threshold < num_new:
        num_new = threshold
    return i64(min(num_new, left, max_model_len - request[COMPUTED] - 1))


@inlined
def _schedule_running(plan: Plan, state: State, batch: int, threshold: int, held: bool) -> int:
    """Schedule running requests in order, preempting others where blocks are short; returns the budget left.

    Nearly all of them decode and need no block in this step. For those the loop makes no call that takes the whole
    state: handing over its arrays costs more than the decision.
    """
    requests, queues = state.requests, state.queues
    current_step = i64(state.output.counters[CURRENT_STEP])
    left = plan.max_num_batched_tokens
    index = 0
    while index < queues.counters[NUM_RUNNING] and left > 0:
        slot = i64(queues.lists[RUNNING_LIST, index])
        request = requests[slot]
        num_new = _running_tokens(request, current_step, threshold, left, plan.max_model_len)
        if plan.split_block_size > 0:
            num_new = clip_chunk(plan, state, slot, i64(request[COMPUTED]), num_new)
        if num_new <= 0 or (held and request[PREFILLING] != 0):
            index += 1
            continue
        fits = is_quiet(request, num_new, plan.max_model_len) and (num_new == 1 or plan.split_block_size == 0)
        if not fits:
            fits = grow(plan, state, slot, num_new)
        while not fits:
            place = victim_place(plan, state)
            victim = i64(queues.lists[RUNNING_LIST, place])
            left += withdraw(state, batch, victim)
            preempt(plan, state, place)
            if place < index:
                index -= 1
            if victim == slot:
                break
            fits = grow(plan, state, slot, num_new)
        if fits:
            _append(requests, queues, batch, slot, num_new)
            if request[PREFILLING] != 0:
                queues.counters[CARRIES_PREFILL] = 1
            left -= num_new
            index += 1
        elif not plan.priority_policy:
            break
    return left


@internal
def _schedule_waiting(plan: Plan, state: State, batch: int, threshold: int, left: int, held: bool) -> int:
    """Admit waiting requests in order until one does not fit; returns the budget left."""
    queues = state.queues
    count = queues.counters
    count[NUM_SKIPPED] = 0
    while left > 0 and count[NUM_WAITING] > 0 and count[NUM_RUNNING] < plan.max_num_active_seqs:
        slot = i64(queues.lists[WAITING_HEAP, 0])
        if state.requests[slot, STALE] > 0 and state.requests[slot, DROPS_STALE] == 0:
            _pass_over(state)
            continue
        others_running = bool(count[NUM_RUNNING] > 0)
        if plan.encoder_budget == 0 and is_still_blocked(plan, state, slot, others_running):
            break
        hit = find_computed(plan, state, slot)
        num_new = state.requests[slot, NUM_TOKENS] - hit
        if held and num_new > 1:
            break
        replayed = num_replayed(hit, plan.prefix_replay_tokens)
        num_new += replayed
        if 0 < threshold < num_new:
            num_new = threshold
        if not plan.enable_chunked_prefill and num_new > left:
            break
        num_new = clip_chunk(plan, state, slot, hit, i64(min(num_new, left)))
        if num_new == 0:
            break
        if plan.encoder_budget > 0 and not fits_step(state.requests[slot], count):
            _pass_over(state)
            continue
        past_hit = max(num_new - replayed, 0)
        if not can_admit(plan, state, slot, hit, past_hit, others_running):
            note_blocked(plan, state, slot, hit)
            give_back(state.requests[slot], count)
            break
        pop(state.requests, queues)
        _mark_deferred(state, slot, 0)
        if state.seen.key.size > 0:
            explain_hit(plan, state, slot, hit)
        admit(plan, state, slot, hit, past_hit)
        take_in(state.requests[slot], count)
        _start(plan, state, batch, slot, hit, num_new, replayed)
        left -= num_new
    for i in range(count[NUM_SKIPPED]):
        push(state.requests, queues, i64(queues.lists[SKIPPED_LIST, i]))
    return left


@internal
def _pass_over(state: State) -> None:
    """Set the first waiting request aside until this scan is over, so that those behind it may go first."""
    queues = state.queues
    slot = pop(state.requests, queues)
    queues.lists[SKIPPED_LIST, queues.counters[NUM_SKIPPED]] = slot
    queues.counters[NUM_SKIPPED] += 1
    _mark_deferred(state, slot, 1)


@internal
def _mark_deferred(state: State, slot: int, mark: int) -> None:
    """Count a waiting request as passed over (1), or no longer (0)."""
    state.queues.counters[NUM_DEFERRED] += mark - state.requests[slot, DEFERRED]
    state.requests[slot, DEFERRED] = mark


@internal
def _start(plan: Plan, state: State, batch: int, slot: int, hit: int, num_new: int, replayed: int) -> None:
    """Move an admitted request to the end of the running list and into the batch, and count its look-up."""
    queues = state.queues
    request = state.requests[slot]
    queues.lists[RUNNING_LIST, queues.counters[NUM_RUNNING]] = slot
    queues.counters[NUM_RUNNING] += 1
    request[STATUS] = RUNNING
    request[COMPUTED] = hit - replayed
    if hit - replayed < request[NUM_TOKENS] - 1:
        queues.counters[CARRIES_PREFILL] = 1
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
    _append(state.requests, queues, batch, slot, num_new)


@inlined
def _advance_requests(plan: Plan, requests: Int64s, queues: Queues, batch: int, current_step: int) -> None:
    """Count the scheduled tokens as computed, before they are: the next schedule() may run ahead of the GPU.

    A request whose known tokens are all scheduled gets a token from this batch. With async scheduling that token has a
    placeholder, and with p pipeline stages the request decodes again p calls later at the earliest.
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
            request[PLACEHOLDERS] += 1
            request[ELIGIBLE_STEP] = current_step + plan.pipeline_parallel_size
