"""Processing the output of one batch: tokens more for each request that got any, and the end of those that are done.

vllm 0.33.0 v1/core/sched/scheduler.py:2259 (update_from_output), v1/core/sched/utils.py:88 (check_stop).
"""

from __future__ import annotations

from sim.core import drafts as drafts_module
from sim.core import kv_cache_manager
from sim.core import remote as remote_module
from sim.core._jit import apart, i64, inlined
from sim.core.cross import give_back, note_output
from sim.core.output import (
    F_ARRIVAL,
    F_CACHED,
    F_FINISH,
    F_FIRST_SCHEDULED,
    F_FIRST_TOKEN,
    F_ORDINAL,
    F_OUTPUT,
    F_PREEMPTIONS,
    F_PRIORITY,
    F_PROMPT,
    F_REASON,
    FINISH_ROWS,
    FINISHED_COUNT,
    LAST_FINISH,
    LENGTH_CAPPED,
    NOW,
    OUTPUT_COUNT,
    STOP,
    TABLE_LOG_LENGTH,
    TRUNCATED,
    TRUNCATED_COUNT,
)
from sim.core.queues import discard
from sim.core.state import (
    ARRIVAL,
    BATCH_HEAD,
    BATCH_REQUESTS,
    CACHE_AT,
    CACHED_TOKENS,
    COMPUTED,
    DEFERRED,
    DROPS_STALE,
    E_DRAFTS,
    E_SAMPLES,
    E_SLOT,
    E_TOKENS,
    FINISHED,
    FIRST_SCHEDULED,
    FIRST_TOKEN,
    FREE_SLOT,
    FREE_SLOT_STACK,
    HEAD,
    IN_FLIGHT,
    KV_NONE,
    LENGTH,
    MAX_TOKENS,
    NUM_BATCHES,
    NUM_DEFERRED,
    NUM_FINISHED_IDS,
    NUM_FREE_SLOTS,
    NUM_RUNNING,
    NUM_TOKENS,
    ORDINAL,
    OUTPUT,
    PLACEHOLDERS,
    PREEMPTIONS,
    PRIORITY,
    PROMPT,
    ROW,
    RUNNING,
    RUNNING_LIST,
    SENDING,
    SPEC,
    STALE,
    STATUS,
    Int64s,
    Plan,
    Queues,
    State,
)

_free = kv_cache_manager.free
_cache_processed = kv_cache_manager.cache_processed
_verify = drafts_module.verify
_hand_over = remote_module.hand_over
GOES_ON = -1


@inlined
def commit(plan: Plan, state: State) -> None:
    """Process the oldest batch in flight at the current time."""
    requests, queues = state.requests, state.queues
    batch = queues.counters[BATCH_HEAD]
    now = i64(state.output.counters[NOW])
    outputs, ended = 0, False
    for i in range(queues.batch[batch, BATCH_REQUESTS]):
        slot = i64(queues.entries[batch, i, E_SLOT])
        request = requests[slot]
        stale = _return_tokens(request, i64(queues.entries[batch, i, E_TOKENS]))
        if request[STATUS] == FINISHED:
            _release_slot(requests, queues, slot)
            continue
        if stale and request[DROPS_STALE] != 0:
            continue
        if plan.encoder_budget > 0:
            note_output(request, queues.counters)
        if queues.entries[batch, i, E_SAMPLES] == 0:
            continue
        sampled, before = 1, request[NUM_TOKENS]
        if plan.num_spec_tokens > 0 and queues.entries[batch, i, E_DRAFTS] != 0:
            drafts = i64(queues.entries[batch, i, E_DRAFTS])
            sampled += _verify(plan.acceptance, plan.draft_word, state.output.counters, request, drafts, stale)
        reason = _append_outputs(request, sampled, now, plan.max_model_len)
        outputs += request[NUM_TOKENS] - before
        if not stale and (request[PLACEHOLDERS] > 0 or plan.num_spec_tokens > 0):
            request[COMPUTED] -= before + sampled - request[NUM_TOKENS]  # those after the end
            request[PLACEHOLDERS] = max(request[PLACEHOLDERS] - sampled, 0)
            if request[STATUS] == RUNNING and request[COMPUTED] - request[IN_FLIGHT] >= request[CACHE_AT]:
                _cache_processed(plan, state, slot)
        if reason != GOES_ON:
            ended |= _end(plan, state, slot, reason)
        elif plan.num_spec_tokens > 0 and not plan.async_scheduling and not plan.asks_for_drafts:
            request[SPEC] = plan.num_spec_tokens
    state.output.counters[OUTPUT_COUNT] += outputs
    queues.counters[BATCH_HEAD] = (batch + 1) % plan.max_concurrent_batches
    queues.counters[NUM_BATCHES] -= 1
    if ended:
        _drop_finished(requests, queues)


@inlined
def _return_tokens(request: Int64s, tokens: int) -> bool:
    """Take a batch's tokens out of flight; whether the output is stale: the request was preempted since."""
    request[IN_FLIGHT] -= tokens
    stale = request[STALE] > 0
    if stale:
        request[STALE] -= tokens
    return bool(stale)


@inlined
def _append_outputs(request: Int64s, sampled: int, now: int, max_model_len: int) -> int:
    """Count the outputs of a request up to the one it ends with; why it ends, or GOES_ON.

    outputs   | so far | 3 sampled |        the last one is the second of them
    counted   |--------------|
    """
    if request[FIRST_TOKEN] < 0:
        request[FIRST_TOKEN] = now
    last = min(request[PROMPT] + min(request[OUTPUT], request[MAX_TOKENS]), max_model_len)
    request[NUM_TOKENS] += max(min(sampled, last - request[NUM_TOKENS]), 1)
    return _stop_reason(max_model_len, request)


@inlined
def _end(plan: Plan, state: State, slot: int, reason: int) -> bool:
    """End a request that runs, or one that was preempted and got its last output all the same; whether it ran."""
    request = state.requests[slot]
    was_running = request[STATUS] == RUNNING
    if not was_running:
        discard(state.requests, state.queues, slot)
        state.queues.counters[NUM_DEFERRED] -= request[DEFERRED]
    _finish(plan, state, slot, reason)
    return bool(was_running)


@inlined
def _stop_reason(max_model_len: int, request: Int64s) -> int:
    """Why the request ends with the token just appended, or GOES_ON.

    An end-of-sequence token comes as output number OUTPUT, when that is below max_tokens.
    """
    outputs = request[NUM_TOKENS] - request[PROMPT]
    if outputs == request[OUTPUT] and request[OUTPUT] < request[MAX_TOKENS]:
        return STOP
    if outputs >= request[MAX_TOKENS]:
        return LENGTH_CAPPED
    if request[NUM_TOKENS] >= max_model_len:
        return TRUNCATED
    return GOES_ON


@inlined
def _finish(plan: Plan, state: State, slot: int, reason: int) -> None:
    """Free a finished request's blocks and write its record."""
    request = state.requests[slot]
    _log_tables(state, slot)
    request[STATUS] = FINISHED
    if plan.kv_role != KV_NONE and request[ROW] >= 0:
        _hand_over(plan, state, slot)
    else:
        _free(plan, state, slot)
    give_back(request, state.queues.counters)
    state.queues.counters[NUM_FINISHED_IDS] += 1
    output = state.output
    record = output.finished[output.counters[FINISH_ROWS]]
    output.counters[FINISH_ROWS] += 1
    record[F_ORDINAL] = request[ORDINAL]
    record[F_ARRIVAL] = request[ARRIVAL]
    record[F_FIRST_SCHEDULED] = request[FIRST_SCHEDULED]
    record[F_FIRST_TOKEN] = request[FIRST_TOKEN]
    record[F_FINISH] = output.counters[NOW]
    record[F_PROMPT] = request[PROMPT]
    record[F_OUTPUT] = request[NUM_TOKENS] - request[PROMPT]
    record[F_CACHED] = request[CACHED_TOKENS]
    record[F_PREEMPTIONS] = request[PREEMPTIONS]
    record[F_PRIORITY] = request[PRIORITY]
    record[F_REASON] = reason
    output.counters[FINISHED_COUNT] += 1
    output.counters[LAST_FINISH] = output.counters[NOW]
    if reason == TRUNCATED:
        output.counters[TRUNCATED_COUNT] += 1
    _release_slot(state.requests, state.queues, slot)


@inlined
def _release_slot(requests: Int64s, queues: Queues, slot: int) -> None:
    """Let the slot of a finished request be used again once no batch in flight names it."""
    if requests[slot, IN_FLIGHT] > 0 or requests[slot, STATUS] == SENDING:
        return
    requests[slot, STATUS] = FREE_SLOT
    count = queues.counters
    queues.lists[FREE_SLOT_STACK, count[NUM_FREE_SLOTS]] = slot
    count[NUM_FREE_SLOTS] += 1


@apart
def _log_tables(state: State, slot: int) -> None:
    """Keep the block tables of a finishing request for the step log, when one is kept."""
    log = state.output.tables
    if log.size == 0:
        return
    row = state.requests[slot, ROW]
    at = state.output.counters[TABLE_LOG_LENGTH]
    log[at] = state.requests[slot, ORDINAL]
    at += 1
    for g in range(state.tables.marks.shape[1]):
        length = i64(state.tables.marks[row, g, LENGTH]) if row >= 0 else 0
        log[at] = length
        at += 1
        for i in range(length):
            log[at] = i64(state.tables.blocks[row, g, i]) if i >= state.tables.marks[row, g, HEAD] else 0
            at += 1
    state.output.counters[TABLE_LOG_LENGTH] = at


@inlined
def _drop_finished(requests: Int64s, queues: Queues) -> None:
    """Close the gaps that finished requests leave in the running list."""
    kept = 0
    for i in range(queues.counters[NUM_RUNNING]):
        slot = queues.lists[RUNNING_LIST, i]
        status = requests[slot, STATUS]
        if status == RUNNING:
            queues.lists[RUNNING_LIST, kept] = slot
            kept += 1
    queues.counters[NUM_RUNNING] = kept
