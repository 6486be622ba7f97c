"""Slots for a request: look up its cached prefix, admit it, let it grow, take its blocks back.

vllm 0.33.0 v1/core/kv_cache_manager.py: get_computed_blocks (:262) and allocate_slots (:390), here
in two halves: ask, then do.
"""

from __future__ import annotations

from sim.core._jit import i64, inlined
from sim.core.caching import cache_blocks
from sim.core.coordinator import blocks_needed, blocks_needed_at_least, hits_fresh_state
from sim.core.eagle import covered_tokens
from sim.core.failures import LOOK_UP_WITHOUT_KEY, STATE_WITHOUT_KEY, exports_among_drafts, fail
from sim.core.hashing import NO_KEY
from sim.core.look_up import search
from sim.core.partial import list_copies, settle_tails
from sim.core.prefix_cache import lookup
from sim.core.replay import kept_hit
from sim.core.seen import OFFERED, note_text
from sim.core.state import (
    BLOCKED_NEED,
    BLOCKED_ORDINAL,
    BLOCKED_TOKENS,
    CACHE_AT,
    COMPUTED,
    ENCODER_TOKENS,
    FIRST_SPAN,
    FREE_AT,
    FREE_BLOCKS,
    FREE_ROW_STACK,
    GROW_AT,
    IN_FLIGHT,
    JUNCTION,
    NUM_FREE_ROWS,
    NUM_TOKENS,
    ORDINAL,
    PROMPT,
    ROW,
    SKIP_CACHE,
    Int64s,
    Plan,
    Pool,
    State,
)
from sim.core.tables import (
    adopt_hits,
    blocks_missing,
    extend,
    free_all,
    free_skipped,
    plan_checkpoints,
    set_cache_at,
    set_free_at,
    set_grow_at,
    set_thresholds,
)


@inlined
def find_computed(plan: Plan, state: State, slot: int) -> int:
    """Tokens of the request's cached prefix; at least its last token, or all that a key covers, is left to compute.

    Also notes the junction: the end of a prefix that one group still knows and another does not, so that its blocks
    are kept for the next sibling (0 when the groups agree).
    """
    request = state.requests[slot]
    request[JUNCTION] = 0
    hit, longest = search(plan, state.cache, state.spans, request, state.tables, state.queues.missed)
    if hit < 0:
        fail(state.queues.counters, LOOK_UP_WITHOUT_KEY)
        return 0
    if longest > hit:
        request[JUNCTION] = longest
    if plan.partial_hits and hit > 0:
        settle_tails(plan, state.pool, state.tables, hit)
    return kept_hit(hit, plan.prefix_replay_tokens)


@inlined
def can_admit(plan: Plan, state: State, slot: int, hit: int, num_new: int, others_running: bool) -> bool:
    """Whether the free blocks suffice for the request's next chunk and, if vLLM reserves it, for its whole text.

    vllm 0.33.0 v1/core/kv_cache_manager.py:505-580.
    """
    if hits_fresh_state(plan, state.pool, state.tables, state.queues, hit):
        return False
    free = free_for_admission(plan, state.pool, others_running)
    end_of_prefill = prefill_end(plan, state, slot)
    encoder = i64(state.requests[slot, ENCODER_TOKENS])
    if plan.scheduler_reserve_full_isl:
        whole = min(state.requests[slot, NUM_TOKENS], plan.max_model_len)
        if blocks_needed(plan, state.pool, state.tables, whole, hit, hit, True, end_of_prefill, encoder) > free:
            return False
    chunk_end = min(hit + num_new, plan.max_model_len)
    need = blocks_needed(plan, state.pool, state.tables, chunk_end, hit, hit, False, end_of_prefill, encoder)
    return bool(need <= free)


@inlined
def free_for_admission(plan: Plan, pool: Pool, others_running: bool) -> int:
    """Free blocks an admission may take: all but the watermark, which is for those that run."""
    return i64(pool.counters[FREE_BLOCKS] - (plan.watermark_blocks if others_running else 0))


@inlined
def prefill_end(plan: Plan, state: State, slot: int) -> int:
    """Token at which a request's prefill ends, outputs to be recomputed included; 0 unless only that end is retained.

    Under dense retention every chunk publishes a state (vllm 0.33.0 v1/core/kv_cache_coordinator.py:238).
    """
    if plan.retention_interval != 0:
        return 0
    return i64(max(state.requests[slot, PROMPT], state.requests[slot, NUM_TOKENS] - 1))


@inlined
def note_blocked(plan: Plan, state: State, slot: int, hit: int) -> None:
    """Remember a request that was just refused, with the least it can need as long as its look-up can find no more.

    Its look-up is repeated every step, as vLLM does. Full attention is looked up first and its run ends at a missing
    key; while that key is missing no hit can be longer, or end in a later block, so the blocks needed cannot be fewer.
    """
    count = state.queues.counters
    request = state.requests[slot]
    count[BLOCKED_ORDINAL] = request[ORDINAL]
    count[BLOCKED_TOKENS] = request[NUM_TOKENS]
    whole = min(request[NUM_TOKENS], plan.max_model_len)
    state.queues.missed[1] = state.queues.missed[0]
    longest = max(hit, i64(request[JUNCTION]))
    if plan.partial_hits:
        longest += plan.scheduler_block_size
    count[BLOCKED_NEED] = blocks_needed_at_least(plan, whole, longest)


@inlined
def is_still_blocked(plan: Plan, state: State, slot: int, others_running: bool) -> bool:
    """Whether a request that was refused before is sure to be refused again, without repeating its look-up."""
    count = state.queues.counters
    request = state.requests[slot]
    if count[BLOCKED_ORDINAL] != request[ORDINAL] or count[BLOCKED_TOKENS] != request[NUM_TOKENS]:
        return False
    if not plan.scheduler_reserve_full_isl or plan.prefill_lookahead > 1:
        return False
    free = free_for_admission(plan, state.pool, others_running)
    if count[BLOCKED_NEED] <= free:
        return False
    looks_up = plan.enable_prefix_caching and request[SKIP_CACHE] == 0
    missed = state.queues.missed[1]
    return not looks_up or (missed != NO_KEY and lookup(state.cache, missed) < 0)


@inlined
def admit(plan: Plan, state: State, slot: int, hit: int, num_new: int) -> None:
    """Give an admitted request its tables: the blocks of its hit, then new ones for its next chunk."""
    request = state.requests[slot]
    tables, queues = state.tables, state.queues
    queues.counters[NUM_FREE_ROWS] -= 1
    row = i64(queues.lists[FREE_ROW_STACK, queues.counters[NUM_FREE_ROWS]])
    request[ROW] = row
    end = min(hit + num_new, plan.max_model_len)
    adopt_hits(plan, state.pool, tables, row, hit, hit)
    if plan.split_block_size > 0:
        plan_checkpoints(plan, tables, row, hit, end, prefill_end(plan, state, slot))
    extend(plan, state.pool, state.cache, tables, row, end, i64(request[ENCODER_TOKENS]))
    if plan.partial_hits or plan.drops_last_block:
        list_copies(plan, state, row)
    keep = i64(min(hit + num_new, request[NUM_TOKENS]))
    if plan.num_spec_tokens > 0 and exports_among_drafts(plan, tables, request):
        fail(queues.counters, STATE_WITHOUT_KEY)
        return
    if plan.enable_prefix_caching:
        cache_blocks(plan, state.pool, state.cache, state.spans, tables, request, keep, queues, state.seen)
    set_thresholds(plan, tables, request, keep)


@inlined
def is_quiet(request: Int64s, num_new: int) -> bool:
    """Whether no block is taken, freed or cached when a running request gets slots for ``num_new`` more tokens."""
    end = request[COMPUTED] + num_new
    keep = min(end, request[NUM_TOKENS])
    processed = request[COMPUTED] - request[IN_FLIGHT]
    return bool(processed < request[FREE_AT] and end <= request[GROW_AT] and keep < request[CACHE_AT])


@inlined
def grow(plan: Plan, state: State, slot: int, num_new: int) -> bool:
    """Give a running request slots for ``num_new`` more tokens; False, and no block taken, when they do not fit.

    tokens   | processed | in flight | new |
    freed    blocks wholly behind a window of the *processed* tokens
    cached   full blocks of tokens whose content is known (not of outputs still in flight), and a state that is exported
             inside the chunk, be it at the end of a hit of which a part is computed again
    """
    request = state.requests[slot]
    end = i64(min(request[COMPUTED] + num_new, plan.max_model_len))
    keep = i64(min(request[COMPUTED] + num_new, request[NUM_TOKENS]))
    processed = i64(request[COMPUTED] - request[IN_FLIGHT])
    tables, row = state.tables, i64(request[ROW])
    states, exports = plan.split_block_size > 0, False
    if processed >= request[FREE_AT]:
        free_skipped(plan, state.pool, tables, row, processed, i64(request[PROMPT]))
        set_free_at(plan, tables, request)
    if states:
        exports = plan_checkpoints(plan, tables, row, i64(request[COMPUTED]), end, prefill_end(plan, state, slot))
    if end > request[GROW_AT] or states:
        if blocks_missing(plan, state.pool, tables, row, end) > state.pool.counters[FREE_BLOCKS]:
            return False
        extend(plan, state.pool, state.cache, tables, row, end, 0)
        set_grow_at(plan, tables, request, keep)
        if plan.partial_hits or plan.drops_last_block:
            list_copies(plan, state, row)
    if states and plan.num_spec_tokens > 0 and exports_among_drafts(plan, tables, request):
        fail(state.queues.counters, STATE_WITHOUT_KEY)
        return True
    if keep >= request[CACHE_AT] or (exports and plan.enable_prefix_caching):
        cache_blocks(plan, state.pool, state.cache, state.spans, tables, request, keep, state.queues, state.seen)
        set_cache_at(plan, tables, request, keep)
    if states:  # each of the three may move the others' thresholds
        set_thresholds(plan, tables, request, keep)
    return True


@inlined
def cache_processed(plan: Plan, state: State, slot: int) -> None:
    """Cache the blocks that became full with outputs just processed (async scheduling).

    vllm 0.33.0 v1/core/sched/scheduler.py:2404.
    """
    request, tables = state.requests[slot], state.tables
    keep = i64(request[COMPUTED] - request[IN_FLIGHT])
    cache_blocks(plan, state.pool, state.cache, state.spans, tables, request, keep, state.queues, state.seen)
    set_cache_at(plan, tables, request, keep)
    if plan.split_block_size > 0:
        set_thresholds(plan, tables, request, keep)


@inlined
def free(plan: Plan, state: State, slot: int) -> None:
    """Free all blocks of a request and its row of the tables; a request without blocks is left alone."""
    row = state.requests[slot, ROW]
    if row < 0:
        return
    if state.seen.key.size > 0:
        request = state.requests[slot]
        processed = covered_tokens(plan, request, i64(request[COMPUTED] - request[IN_FLIGHT]))
        note_text(state.seen, state.spans, i64(request[FIRST_SPAN]), processed, OFFERED)
    free_all(state.pool, state.tables, row)
    count = state.queues.counters
    state.queues.lists[FREE_ROW_STACK, count[NUM_FREE_ROWS]] = row
    count[NUM_FREE_ROWS] += 1
    state.requests[slot, ROW] = -1
