"""Processing the output of one batch: a token more for each request that got one, and the end of those that are done.

vllm 0.33.0 v1/core/sched/scheduler.py:2259 (update_from_output), v1/core/sched/utils.py:88 (check_stop).
"""

from __future__ import annotations

from sim.core import kv_cache_manager
from sim.core._jit import compiled, i64, internal
from sim.core.queues import discard
from sim.core.state import (
    ARRIVAL,
    BATCH_HEAD,
    BATCH_REQUESTS,
    CACHED_TOKENS,
    DEFERRED,
    E_SAMPLES,
    E_SLOT,
    E_TOKENS,
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
    FINISHED,
    FINISHED_COUNT,
    FIRST_SCHEDULED,
    FIRST_TOKEN,
    FREE_SLOT,
    FREE_SLOT_STACK,
    HEAD,
    IN_FLIGHT,
    LAST_FINISH,
    LENGTH,
    LENGTH_CAPPED,
    MAX_TOKENS,
    NOW,
    NUM_BATCHES,
    NUM_DEFERRED,
    NUM_FINISHED_IDS,
    NUM_FREE_SLOTS,
    NUM_RUNNING,
    NUM_TOKENS,
    ORDINAL,
    OUTPUT,
    OUTPUT_COUNT,
    PLACEHOLDERS,
    PREEMPTIONS,
    PRIORITY,
    PROMPT,
    ROW,
    RUNNING,
    RUNNING_LIST,
    STALE,
    STATUS,
    STOP,
    TABLE_LOG_LENGTH,
    TRUNCATED,
    TRUNCATED_COUNT,
    Int64s,
    Plan,
    State,
)

_free = kv_cache_manager.free
_cache_processed = kv_cache_manager.cache_processed
GOES_ON = -1


@internal
def commit(plan: Plan, state: State) -> None:
    """Process the oldest batch in flight at the current time."""
    queues = state.queues
    batch = queues.counters[BATCH_HEAD]
    finished = False
    for i in range(queues.batch[batch, BATCH_REQUESTS]):
        slot = i64(queues.entries[batch, i, E_SLOT])
        tokens = i64(queues.entries[batch, i, E_TOKENS])
        finished |= _process(plan, state, slot, tokens, queues.entries[batch, i, E_SAMPLES] != 0)
    queues.counters[BATCH_HEAD] = (batch + 1) % plan.max_concurrent_batches
    queues.counters[NUM_BATCHES] -= 1
    if finished:
        _drop_finished(state)


@internal
def _process(plan: Plan, state: State, slot: int, tokens: int, samples: bool) -> bool:
    """Process one request of a batch; True when a running request ended."""
    request = state.requests[slot]
    request[IN_FLIGHT] -= tokens
    stale = request[STALE] > 0
    if stale:
        request[STALE] -= tokens
    if request[STATUS] == FINISHED:
        _release_slot(state, slot)
        return False
    if not samples:
        return False
    request[NUM_TOKENS] += 1
    state.output.counters[OUTPUT_COUNT] += 1
    if request[FIRST_TOKEN] < 0:
        request[FIRST_TOKEN] = state.output.counters[NOW]
    reason = _stop_reason(plan, request)
    if not stale and request[PLACEHOLDERS] > 0:
        request[PLACEHOLDERS] -= 1
        if request[STATUS] == RUNNING:
            _cache_processed(plan, state, slot)
    if reason == GOES_ON:
        return False
    was_running = request[STATUS] == RUNNING
    if not was_running:
        discard(state.requests, state.queues, slot)
        state.queues.counters[NUM_DEFERRED] -= request[DEFERRED]
    _finish(state, slot, reason)
    return bool(was_running)


@compiled
def _stop_reason(plan: Plan, request: Int64s) -> int:
    """Why the request ends with the token just appended, or GOES_ON.

    An end-of-sequence token comes as output number OUTPUT, when that is below max_tokens.
    """
    outputs = request[NUM_TOKENS] - request[PROMPT]
    if outputs == request[OUTPUT] and request[OUTPUT] < request[MAX_TOKENS]:
        return STOP
    if outputs >= request[MAX_TOKENS]:
        return LENGTH_CAPPED
    if request[NUM_TOKENS] >= plan.max_model_len:
        return TRUNCATED
    return GOES_ON


@internal
def _finish(state: State, slot: int, reason: int) -> None:
    """Free a finished request's blocks and write its record."""
    request = state.requests[slot]
    _log_tables(state, slot)
    _free(state, slot)
    request[STATUS] = FINISHED
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
    _release_slot(state, slot)


@internal
def _release_slot(state: State, slot: int) -> None:
    """Let the slot of a finished request be used again once no batch in flight names it."""
    if state.requests[slot, IN_FLIGHT] > 0:
        return
    state.requests[slot, STATUS] = FREE_SLOT
    count = state.queues.counters
    state.queues.lists[FREE_SLOT_STACK, count[NUM_FREE_SLOTS]] = slot
    count[NUM_FREE_SLOTS] += 1


@internal
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


@internal
def _drop_finished(state: State) -> None:
    """Close the gaps that finished requests leave in the running list."""
    queues = state.queues
    kept = 0
    for i in range(queues.counters[NUM_RUNNING]):
        slot = queues.lists[RUNNING_LIST, i]
        status = state.requests[slot, STATUS]
        if status == RUNNING:
            queues.lists[RUNNING_LIST, kept] = slot
            kept += 1
    queues.counters[NUM_RUNNING] = kept
