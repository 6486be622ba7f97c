"""Waiting requests: who enters in this step, with how many tokens, and who is passed over.

vllm 0.33.0 v1/core/sched/scheduler.py:1055-1600.
"""

from __future__ import annotations

from sim.core import drafts as drafts_module
from sim.core._jit import i64, inlined
from sim.core.batch import append
from sim.core.cross import fits_step, give_back, take_in
from sim.core.failures import PADDING_CUT, fail
from sim.core.kv_cache_manager import (
    admit,
    can_admit,
    find_computed,
    free_for_admission,
    is_still_blocked,
    note_blocked,
)
from sim.core.lost_hits import explain_hit
from sim.core.output import HIT_TOKENS, NOW, QUERY_TOKENS, RESUMED_HIT_TOKENS, RESUMED_QUERY_TOKENS
from sim.core.queues import pop, push
from sim.core.remote import begin_load, is_loaded
from sim.core.replay import num_replayed
from sim.core.split import clip_chunk
from sim.core.state import (
    BATCH_REQUESTS,
    CACHED_TOKENS,
    CARRIES_PREFILL,
    COMPUTED,
    D_ADMITTED,
    D_HIT,
    DEFERRED,
    DRAFTS_USED,
    DROPS_STALE,
    FIRST_SCHEDULED,
    LOADING_LIST,
    NUM_ADMITTED,
    NUM_DEFERRED,
    NUM_LOADING,
    NUM_RUNNING,
    NUM_SKIPPED,
    NUM_TOKENS,
    NUM_WAITING,
    PREEMPTIONS,
    REMOTE,
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

_padding = drafts_module.padding
_may_use_drafts = drafts_module.may_use_drafts
_leave_lookahead = drafts_module.leave_lookahead
_NOT_NOW, _PASSED = -1, -2


@inlined
def schedule_waiting(plan: Plan, state: State, batch: int, threshold: int, left: int, held: bool) -> int:
    """Admit requests whose prompts were fetched, then waiting ones, until one does not fit; returns the budget left."""
    if state.queues.counters[NUM_LOADING] > 0:
        left = _admit_loaded(plan, state, batch, left)
        if left < 0:
            return -left - 1
    return _admit_waiting(plan, state, batch, threshold, left, held)


@inlined
def _admit_waiting(plan: Plan, state: State, batch: int, threshold: int, left: int, held: bool) -> int:
    """Admit waiting requests in order until one does not fit; returns the budget left."""
    queues = state.queues
    count = queues.counters
    count[NUM_SKIPPED] = 0
    others = queues.batch[batch, BATCH_REQUESTS] > 0
    decodes_only = count[CARRIES_PREFILL] == 0
    while left > 0 and count[NUM_WAITING] > 0 and count[NUM_RUNNING] < plan.max_num_active_seqs:
        slot = i64(queues.lists[WAITING_HEAP, 0])
        others_running = bool(count[NUM_RUNNING] > 0)
        hit = _first_hit(plan, state, batch, slot, held, others_running)
        if hit == _NOT_NOW:
            break
        if hit == _PASSED:
            continue
        replayed = num_replayed(hit, plan.prefix_replay_tokens)
        drafts = 0
        if decodes_only and (hit > 0 or others):
            known = i64(state.requests[slot, NUM_TOKENS])
            drafts = _padding(plan.num_spec_tokens, known, hit - replayed, plan.max_model_len)
        num_new = _first_chunk(plan, state, slot, hit, replayed, threshold, left, drafts)
        if num_new == _NOT_NOW:
            break
        if num_new == 0 or (plan.encoder_budget > 0 and not fits_step(state.requests[slot], count)):
            _pass_over(state)
            continue
        cut = drafts > 0 and num_new <= drafts
        drafts = 0 if cut else drafts
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
        _start(plan, state, batch, slot, hit, replayed, num_new, drafts)
        if cut and plan.split_block_size == 0:
            fail(count, PADDING_CUT)
        left -= num_new + plan.draft_slots
    for i in range(count[NUM_SKIPPED]):
        push(state.requests, queues, i64(queues.lists[SKIPPED_LIST, i]))
    return left


@inlined
def _first_hit(plan: Plan, state: State, batch: int, slot: int, held: bool, others_running: bool) -> int:
    """Tokens of the first waiting request's hit; _PASSED: it is set aside or fetched; _NOT_NOW: nobody enters."""
    request = state.requests[slot]
    if request[STALE] > 0 and request[DROPS_STALE] == 0:
        _pass_over(state)
        return _PASSED
    if plan.encoder_budget == 0 and is_still_blocked(plan, state, slot, others_running):
        return _NOT_NOW
    hit = find_computed(plan, state, slot)
    if request[REMOTE] != 0:
        return _PASSED if begin_load(plan, state, batch, slot, hit, others_running) else _NOT_NOW
    if held and request[NUM_TOKENS] - hit > 1:
        return _NOT_NOW
    return hit


@inlined
def _admit_loaded(plan: Plan, state: State, batch: int, left: int) -> int:
    """Admit requests whose prompts have been fetched, in order, with one token each; returns the budget left.

    As -1 - left when one of them has to wait for a place or for blocks: then nobody else enters.
    """
    queues = state.queues
    count = queues.counters
    kept, at, stopped = 0, 0, False
    while at < count[NUM_LOADING] and left > 0:
        slot = i64(queues.lists[LOADING_LIST, at])
        stopped = bool(count[NUM_RUNNING] >= plan.max_num_active_seqs)
        loaded = not stopped and is_loaded(plan, state, slot)
        stopped = stopped or (loaded and free_for_admission(plan, state.pool, bool(count[NUM_RUNNING] > 0)) < 0)
        if stopped:
            break
        at += 1
        if not loaded:
            queues.lists[LOADING_LIST, kept] = slot
            kept += 1
        else:
            request = state.requests[slot]
            _enter(state, batch, slot, i64(request[COMPUTED]), i64(request[CACHED_TOKENS]), 1, 0)
            left -= 1
    while at < count[NUM_LOADING]:
        queues.lists[LOADING_LIST, kept] = queues.lists[LOADING_LIST, at]
        kept += 1
        at += 1
    count[NUM_LOADING] = kept
    return -1 - left if stopped else left


@inlined
def _enter(state: State, batch: int, slot: int, computed: int, hit: int, num_new: int, drafts: int) -> None:
    """Move a request to the end of the running list and into the batch."""
    queues, request = state.queues, state.requests[slot]
    queues.lists[RUNNING_LIST, queues.counters[NUM_RUNNING]] = slot
    queues.counters[NUM_RUNNING] += 1
    request[STATUS] = RUNNING
    request[COMPUTED] = computed
    if request[FIRST_SCHEDULED] < 0:
        request[FIRST_SCHEDULED] = state.output.counters[NOW]
        request[CACHED_TOKENS] = hit
    queues.decided[queues.counters[NUM_ADMITTED], D_ADMITTED] = slot
    queues.decided[queues.counters[NUM_ADMITTED], D_HIT] = hit
    queues.counters[NUM_ADMITTED] += 1
    append(state.requests, queues, batch, slot, num_new, drafts)


@inlined
def _first_chunk(
    plan: Plan, state: State, slot: int, hit: int, replayed: int, threshold: int, left: int, padding: int
) -> int:
    """Tokens of an admission's first chunk, padding included; 0: others go first; _NOT_NOW: nobody enters any more.

    Padding is all there or not at all: nobody enters where it does not fit, and a chunk that states cut shorter goes
    without.
    """
    num_new = state.requests[slot, NUM_TOKENS] - hit + replayed + padding
    if padding > 0 and num_new > left:
        return _NOT_NOW
    if 0 < threshold < num_new:
        num_new = threshold
    if not plan.enable_chunked_prefill and num_new > left:
        return _NOT_NOW
    num_new = clip_chunk(plan, state, slot, hit, i64(min(num_new, left)))
    if num_new == 0:
        return _NOT_NOW
    if 0 < num_new <= padding and plan.split_block_size > 0:
        num_new = 1
    if plan.prefill_lookahead > 1:
        known = i64(state.requests[slot, NUM_TOKENS])
        num_new = _leave_lookahead(known, hit - replayed, num_new, plan.prefill_lookahead)
    return i64(num_new)


@inlined
def _pass_over(state: State) -> None:
    """Set the first waiting request aside until this scan is over, so that those behind it may go first."""
    count = state.queues.counters
    slot = pop(state.requests, state.queues)
    state.queues.lists[SKIPPED_LIST, count[NUM_SKIPPED]] = slot
    count[NUM_SKIPPED] += 1
    _mark_deferred(state, slot, 1)


@inlined
def _mark_deferred(state: State, slot: int, mark: int) -> None:
    """Count a waiting request as passed over (1), or no longer (0)."""
    state.queues.counters[NUM_DEFERRED] += mark - state.requests[slot, DEFERRED]
    state.requests[slot, DEFERRED] = mark


@inlined
def _start(
    plan: Plan, state: State, batch: int, slot: int, hit: int, replayed: int, num_new: int, padding: int
) -> None:
    """Move an admitted request to the end of the running list and into the batch, and count its look-up."""
    request = state.requests[slot]
    if hit - replayed < request[NUM_TOKENS] - 1:
        state.queues.counters[CARRIES_PREFILL] = 1
    if plan.enable_prefix_caching and request[SKIP_CACHE] == 0:
        resumed = request[PREEMPTIONS] > 0
        state.output.counters[RESUMED_QUERY_TOKENS if resumed else QUERY_TOKENS] += request[NUM_TOKENS]
        state.output.counters[RESUMED_HIT_TOKENS if resumed else HIT_TOKENS] += hit
    _enter(state, batch, slot, hit - replayed, hit, num_new, -padding)
    if plan.asks_for_drafts and _may_use_drafts(request, num_new):
        state.queues.counters[DRAFTS_USED] = 1
