"""The engine loop over time: schedule, price, and process outputs until something outside is due.

One turn, as the engine core of vLLM does it with its queue of batches (vllm 0.33.0 v1/engine/core.py:673 step, :708
step_with_batch_queue): arrivals up to now join the waiting queue; a batch, possibly empty, is scheduled and queued;
while the queue is not full the loop turns again at once; else it waits for the oldest batch and processes its output.
With one batch in the queue that is synchronous scheduling.

    now ------>  schedule 1   schedule 2 | wait, process 1   schedule 3 | wait, process 2 ...
    GPU          |===== batch 1 =====|===== batch 2 =====|===== batch 3 ...

With p pipeline stages a batch ends a whole duration after it was scheduled, at least 1/p of its duration after the one
before, and a whole duration after the batches that sample the tokens it takes in. Scheduling itself takes no time. An
arrival at time t precedes a schedule at t.
"""

from __future__ import annotations

from sim.core import drafts as drafts_module
from sim.core._jit import apart, compiled, i64, inlined
from sim.core.commit import commit
from sim.core.failures import NO_FAILURE
from sim.core.output import (
    DRAFTS_DUE,
    FINISH_ROWS,
    FINISHED_COUNT,
    IDLE_CALLS,
    LAST_END,
    MUST_PROCESS,
    NEXT_RESET,
    NOW,
    PEAK_RUNNING,
    PEAK_USED_BLOCKS,
    PEAK_WAITING,
    S_ADMITTED,
    S_END,
    S_HIT,
    S_PREEMPTED,
    S_PREFILL,
    S_REQUESTS,
    S_RUNNING,
    S_START,
    S_STEP,
    S_TOKENS,
    S_USED,
    S_WAITING,
    SCHEDULED_COUNT,
    STEP_ROWS,
    STEPS,
)
from sim.core.price import Price, price_batch
from sim.core.queues import push_new
from sim.core.remote import next_load_end
from sim.core.reset import reset_due
from sim.core.scheduler import schedule
from sim.core.seen import is_short
from sim.core.shares import record_shares
from sim.core.state import (
    ARRIVAL,
    BATCH_END,
    BATCH_HEAD,
    BATCH_REQUESTS,
    BATCH_TOKENS,
    COMPUTED,
    D_HIT,
    E_DRAFTS,
    E_SAMPLES,
    E_SLOT,
    E_TOKENS,
    FAILURE,
    FREE_BLOCKS,
    INBOX_HEAD,
    INBOX_RING,
    NEVER,
    NUM_ADMITTED,
    NUM_BATCHES,
    NUM_BLOCKS,
    NUM_FINISHED_IDS,
    NUM_INBOX,
    NUM_LOADING,
    NUM_PREEMPTED,
    NUM_RUNNING,
    NUM_WAITING,
    PROMPT,
    SAMPLE_END,
    STATUS,
    WAITING,
    Plan,
    State,
)

_ask_for_drafts = drafts_module.ask_for_drafts

IDLE, HORIZON, STEPPED, RECORDS_FULL, STALLED, FINISHED_SOME, FAILED = range(7)
"""Why :func:`advance` returned: nothing to do, the horizon, one step done, records to drain, no way on, an answer, or a
step that vLLM itself does not survive (:mod:`sim.core.failures`)."""

_SCHEDULE, _PROCESS, _TURN = -1, -2, -3


@compiled
def advance(plan: Plan, price: Price, state: State, horizon: int, one_step: bool, stop_on_finish: bool) -> int:
    """Run until the next schedule would come at ``horizon`` ns or later, the next output after it, or another reason.

    With ``one_step`` it returns right after each schedule() that scheduled something, before any output is processed;
    with ``stop_on_finish`` also after outputs that ended a request, before anything is scheduled at that instant.
    The state can be read and requests can be submitted between calls; the next call goes on where this one stopped.
    """
    counters = state.output.counters
    while state.queues.counters[FAILURE] == NO_FAILURE:
        if counters[MUST_PROCESS] == 0:
            if counters[DRAFTS_DUE] != 0 and not _ask_for_drafts(plan, state, horizon):
                return HORIZON
            following = _what_follows(plan, state, horizon)
            if following >= 0:
                return following
            if following == _TURN:
                continue
            if following == _SCHEDULE:
                tokens = _launch(plan, price, state)
                if state.queues.counters[FAILURE] != NO_FAILURE:
                    break
                if one_step and tokens > 0:
                    return STEPPED
                if counters[MUST_PROCESS] == 0:
                    continue
        oldest_end = state.queues.batch[state.queues.counters[BATCH_HEAD], BATCH_END]
        if oldest_end > horizon:
            counters[MUST_PROCESS] = 1
            return HORIZON
        counters[MUST_PROCESS] = 0
        counters[NOW] = max(counters[NOW], oldest_end)
        finished = counters[FINISHED_COUNT]
        commit(plan, state)
        if stop_on_finish and counters[FINISHED_COUNT] > finished:
            return FINISHED_SOME
    return FAILED


@inlined
def _what_follows(plan: Plan, state: State, horizon: int) -> int:
    """At the top of a turn: schedule, process the oldest batch, turn again at a later time, or a reason to return."""
    counters = state.output.counters
    if counters[NEXT_RESET] < state.output.resets.shape[0]:
        reset_due(plan, state)
    _deliver_arrivals(plan, state)
    if not _has_requests(state):
        if state.queues.counters[NUM_BATCHES] > 0:
            return _PROCESS
        return _wait_for_arrival(state, horizon, IDLE)
    if counters[NOW] >= horizon:
        return HORIZON
    if counters[STEP_ROWS] >= state.output.steps.shape[0] or _finish_records_short(state):
        return RECORDS_FULL
    if is_short(state.seen, state.queues.entries.shape[1]):
        return RECORDS_FULL
    if counters[IDLE_CALLS] > plan.max_concurrent_batches + plan.pipeline_parallel_size + 2:
        return _wait_for_arrival(state, horizon, STALLED)
    return _SCHEDULE


@inlined
def _has_requests(state: State) -> bool:
    """Unfinished requests, or finished ones whose ids the next schedule() has yet to report.

    vllm 0.33.0 v1/core/sched/interface.py:205.
    """
    count = state.queues.counters
    return bool(count[NUM_RUNNING] + count[NUM_WAITING] + count[NUM_LOADING] + count[NUM_FINISHED_IDS] > 0)


@inlined
def _finish_records_short(state: State) -> bool:
    """Whether the next outputs could finish more requests than there is room to record."""
    width = state.queues.entries.shape[1]
    return bool(state.output.counters[FINISH_ROWS] + width > state.output.finished.shape[0])


@inlined
def _deliver_arrivals(plan: Plan, state: State) -> None:
    """Move submitted requests whose time has come from the inbox into the waiting queue."""
    queues = state.queues
    count = queues.counters
    while count[NUM_INBOX] > 0:
        slot = i64(queues.lists[INBOX_RING, count[INBOX_HEAD]])
        if state.requests[slot, ARRIVAL] > state.output.counters[NOW]:
            return
        count[INBOX_HEAD] = (count[INBOX_HEAD] + 1) % queues.lists.shape[1]
        count[NUM_INBOX] -= 1
        state.requests[slot, STATUS] = WAITING
        push_new(state.requests, queues, slot, plan.priority_policy)


@inlined
def _wait_for_arrival(state: State, horizon: int, without: int) -> int:
    """Let time pass until the next arrival unless the horizon comes first, or return ``without`` if none is left.

    What arrives may be a prompt that is being fetched.
    """
    queues, counters = state.queues, state.output.counters
    arrival = next_load_end(state)
    if queues.counters[NUM_INBOX] > 0:
        first = state.requests[queues.lists[INBOX_RING, queues.counters[INBOX_HEAD]], ARRIVAL]
        arrival = min(arrival, i64(first))
    if arrival == NEVER:
        return without
    if arrival >= horizon:
        return HORIZON
    counters[NOW] = max(counters[NOW], arrival)
    counters[IDLE_CALLS] = 0
    return _TURN


@inlined
def _launch(plan: Plan, price: Price, state: State) -> int:
    """Schedule a batch, price it and put it into the queue of batches; returns its tokens.

    While the queue has room and there is something left to schedule, the loop does not wait for the oldest batch.
    """
    clock, queues = state.output.counters, state.queues
    batch = (queues.counters[BATCH_HEAD] + queues.counters[NUM_BATCHES]) % plan.max_concurrent_batches
    tokens = schedule(plan, state)
    end = max(clock[NOW], clock[LAST_END])
    if tokens > 0:
        duration = price_batch(price, state.requests, queues, batch, tokens)
        end = max(clock[NOW] + duration, clock[LAST_END] + duration // plan.pipeline_parallel_size)
        if plan.pipeline_parallel_size > 1:
            end = _end_after_samples(state, batch, duration, i64(end))
        clock[STEPS] += 1
        clock[IDLE_CALLS] = 0
        clock[DRAFTS_DUE] = plan.asks_for_drafts
        _record_step(plan, state, batch, tokens, end - duration, end)
    elif clock[LAST_END] <= clock[NOW]:
        clock[IDLE_CALLS] += 1
    clock[LAST_END] = end
    queues.batch[batch, BATCH_TOKENS] = tokens
    queues.batch[batch, BATCH_END] = end
    queues.counters[NUM_BATCHES] += 1
    room = queues.counters[NUM_BATCHES] < plan.max_concurrent_batches
    clock[MUST_PROCESS] = 0 if room and (tokens > 0 or _has_requests(state)) else 1
    return tokens


@apart
def _end_after_samples(state: State, batch: int, duration: int, end: int) -> int:
    """When a batch ends that cannot begin before its requests' last tokens are known; notes its end as their next.

    stage 1   | a1 |    |    | a2 |         a2 takes in what a1 samples at the end of stage 2
    stage 2        | a1 |    |    | a2 |
    """
    requests, queues = state.requests, state.queues
    size = queues.batch[batch, BATCH_REQUESTS]
    for i in range(size):
        end = max(end, i64(requests[queues.entries[batch, i, E_SLOT], SAMPLE_END]) + duration)
    for i in range(size):
        if queues.entries[batch, i, E_SAMPLES] != 0:
            requests[queues.entries[batch, i, E_SLOT], SAMPLE_END] = end
    return end


@inlined
def _record_step(plan: Plan, state: State, batch: int, tokens: int, start: int, end: int) -> None:
    """Write the record of a step as it stands after scheduling, and the peaks."""
    queues, output = state.queues, state.output
    used = state.pool.counters[NUM_BLOCKS] - 1 - state.pool.counters[FREE_BLOCKS]
    total = output.counters
    total[PEAK_USED_BLOCKS] = max(total[PEAK_USED_BLOCKS], used)
    total[PEAK_RUNNING] = max(total[PEAK_RUNNING], queues.counters[NUM_RUNNING])
    waiting = queues.counters[NUM_WAITING] + queues.counters[NUM_LOADING]
    total[PEAK_WAITING] = max(total[PEAK_WAITING], waiting)
    total[SCHEDULED_COUNT] += tokens
    size = queues.batch[batch, BATCH_REQUESTS]
    prefill = 0
    for i in range(size):
        new = i64(queues.entries[batch, i, E_TOKENS])
        request = state.requests[queues.entries[batch, i, E_SLOT]]
        drafts = abs(i64(queues.entries[batch, i, E_DRAFTS]))
        if new - drafts > 1 or request[COMPUTED] - drafts <= request[PROMPT]:
            prefill += new - drafts
    hits = 0
    for i in range(queues.counters[NUM_ADMITTED]):
        hits += queues.decided[i, D_HIT]
    if output.shares.size > 0:
        record_shares(plan, state, i64(output.counters[STEP_ROWS]))
    record = output.steps[output.counters[STEP_ROWS]]
    output.counters[STEP_ROWS] += 1
    record[S_START] = start
    record[S_END] = end
    record[S_TOKENS] = tokens
    record[S_PREFILL] = prefill
    record[S_REQUESTS] = size
    record[S_RUNNING] = queues.counters[NUM_RUNNING]
    record[S_WAITING] = waiting
    record[S_USED] = used
    record[S_PREEMPTED] = queues.counters[NUM_PREEMPTED]
    record[S_ADMITTED] = queues.counters[NUM_ADMITTED]
    record[S_HIT] = hits
    record[S_STEP] = output.counters[STEPS]
