"""Prompts that are computed on one engine and decoded on another: disaggregated prefill, as a KV connector has it.

    prefill engine   | wait | prefill | blocks held ------------------| freed
    decode engine                     | wait | blocks taken, fetched  | last token of the prompt, outputs ...

The engine that decodes takes blocks for the whole prompt at once, less what its own prefix cache holds, and does not
compute until all are here; then it computes the last token of the prompt again, to sample from. Such requests stand in
a queue of their own, which is served before the waiting one. While one holds blocks it cannot be preempted, so it gets
them only where those whose prefill is under way can still finish theirs.

**Exact**, held to vLLM's scheduler without async scheduling: who gets blocks when, which ones, and who is admitted.
With it a consumer of vLLM frees blocks, and may preempt, only once the last step that writes them is processed (:3077);
here that is at once, as for an engine alone.

**Modelled**: prompts are fetched one after another, since the link serves one at a time, in the order in which they
were given blocks. What is fetched is there at the first schedule() after it ended, and its copy elsewhere is free then.

vllm 0.33.0 v1/core/sched/scheduler.py:1055-1550 and :3432-3520,
distributed/kv_transfer/kv_connector/v1/nixl/pull_scheduler.py:36 (what is fetched) and :154 (what is held until then).
"""

from __future__ import annotations

from sim.core._jit import apart, compiled, i64, inlined
from sim.core.block_pool import take_run
from sim.core.caching import cache_blocks
from sim.core.coordinator import blocks_needed
from sim.core.kv_cache_manager import free, free_for_admission
from sim.core.output import HIT_TOKENS, IDLE_CALLS, L_BLOCKS, L_END, L_ORDINAL, L_START, LOAD_ROWS, NOW, QUERY_TOKENS
from sim.core.queues import pop
from sim.core.state import (
    BATCH_POSITION,
    CACHED,
    CACHED_TOKENS,
    COMPUTED,
    D_ADMITTED,
    E_TOKENS,
    FREE_ROW_STACK,
    FREE_SLOT,
    FREE_SLOT_STACK,
    IN_FLIGHT,
    KV_PRODUCER,
    LENGTH,
    LINK_END,
    LOAD_END,
    LOADING,
    LOADING_LIST,
    NEVER,
    NUM_ADMITTED,
    NUM_FREE_ROWS,
    NUM_FREE_SLOTS,
    NUM_LOADING,
    NUM_RUNNING,
    NUM_TOKENS,
    ORDINAL,
    PREFILLING,
    PROMPT,
    REMOTE,
    ROW,
    RUNNING_LIST,
    SENDING,
    SLIDING_WINDOW,
    STATUS,
    WAITING,
    Plan,
    State,
)
from sim.core.tables import adopt_hits, extend, free_skipped, set_thresholds


@apart
def begin_load(plan: Plan, state: State, batch: int, slot: int, hit: int, others_running: bool) -> bool:
    """Give the first waiting request blocks for its prompt and let the rest of it be fetched; False: it does not fit.

    prompt   | hit here | fetched              |      the last token too, but it is computed again
    blocks   | shared   | new, without keys    |
    """
    count, request = state.queues.counters, state.requests[slot]
    tokens = i64(request[NUM_TOKENS])
    free_blocks = free_for_admission(plan, state.pool, others_running)
    need = blocks_needed(plan, state.pool, state.tables, tokens, hit, tokens, True, 0, 0)
    if plan.scheduler_reserve_full_isl and need > free_blocks:
        return False
    need = blocks_needed(plan, state.pool, state.tables, tokens, hit, tokens, False, 0, 0)
    if need > free_blocks - _reserved_blocks(plan, state, batch) or count[NUM_FREE_ROWS] == 0:
        return False
    pop(state.requests, state.queues)
    count[NUM_FREE_ROWS] -= 1
    row = i64(state.queues.lists[FREE_ROW_STACK, count[NUM_FREE_ROWS]])
    request[ROW] = row
    adopt_hits(plan, state.pool, state.tables, row, hit, tokens)
    _take_blocks(plan, state, row, tokens)
    request[STATUS] = LOADING
    request[REMOTE] = 0
    request[COMPUTED] = tokens
    request[CACHED_TOKENS] = hit
    if plan.enable_prefix_caching:
        state.output.counters[QUERY_TOKENS] += tokens
        state.output.counters[HIT_TOKENS] += hit
    state.queues.lists[LOADING_LIST, count[NUM_LOADING]] = slot
    count[NUM_LOADING] += 1
    _fetch(plan, state, slot)
    return True


@apart
def _take_blocks(plan: Plan, state: State, row: int, tokens: int) -> None:
    """New blocks for a prompt that is fetched, group by group; a window of one token, which keeps none of it, last.

    vllm 0.33.0 v1/core/single_type_kv_cache_manager.py:353.
    """
    for g in range(plan.block_size.size):
        marks = state.tables.marks[row, g]
        if plan.kind[g] != SLIDING_WINDOW or plan.kept_window[g] > 1:
            required = i64(-(-tokens // plan.block_size[g]))
            take_run(state.pool, state.cache, state.tables.blocks[row, g], i64(marks[LENGTH]), required, g)
            marks[LENGTH] = max(marks[LENGTH], required)
    extend(plan, state.pool, state.cache, state.tables, row, tokens, 0)


@apart
def _fetch(plan: Plan, state: State, slot: int) -> None:
    """Queue the blocks that a request has no content for at the link, and note from and until when they come."""
    count, request, output = state.queues.counters, state.requests[slot], state.output
    blocks = 0
    for g in range(plan.block_size.size):
        marks = state.tables.marks[request[ROW], g]
        blocks += i64(marks[LENGTH] - marks[CACHED])
    start = i64(max(output.counters[NOW], count[LINK_END]))
    end = start + plan.load_ns + blocks * plan.load_ns_per_block
    count[LINK_END] = end
    request[LOAD_END] = end
    record = output.loads[output.counters[LOAD_ROWS]]
    output.counters[LOAD_ROWS] += 1
    record[L_ORDINAL] = request[ORDINAL]
    record[L_START] = output.counters[NOW]
    record[L_END] = end
    record[L_BLOCKS] = blocks


@apart
def _reserved_blocks(plan: Plan, state: State, batch: int) -> int:
    """Blocks that requests with a part of their prompt still to compute will need to end it.

    vllm 0.33.0 v1/core/sched/scheduler.py:3411 and :3432.
    """
    queues, total = state.queues, 0
    for i in range(queues.counters[NUM_RUNNING]):
        request = state.requests[queues.lists[RUNNING_LIST, i]]
        if request[PREFILLING] != 0:
            total += _missing_blocks(plan, state, i64(queues.lists[RUNNING_LIST, i]))
    for i in range(queues.counters[NUM_ADMITTED]):
        slot = i64(queues.decided[i, D_ADMITTED])
        request = state.requests[slot]
        chunk = queues.entries[batch, request[BATCH_POSITION], E_TOKENS]
        if request[PREFILLING] == 0 and request[COMPUTED] + chunk < request[NUM_TOKENS]:
            total += _missing_blocks(plan, state, slot)
    return total


@apart
def _missing_blocks(plan: Plan, state: State, slot: int) -> int:
    request = state.requests[slot]
    tokens = min(i64(request[NUM_TOKENS]), plan.max_model_len)
    total = 0
    for g in range(plan.block_size.size):
        required = min(-(-tokens // plan.block_size[g]), plan.admission_cap[g])
        total += max(required - state.tables.marks[request[ROW], g, LENGTH], 0)
    return i64(total)


@apart
def is_loaded(plan: Plan, state: State, slot: int) -> bool:
    """Whether a request's blocks are here; the first time it is asked after that, they get their keys.

    All is computed then but for the last token of the prompt, which the first output is sampled from.
    """
    request = state.requests[slot]
    if request[STATUS] != LOADING:
        return True
    if request[LOAD_END] > state.output.counters[NOW]:
        return False
    tokens = i64(request[NUM_TOKENS])
    if plan.enable_prefix_caching:
        cache_blocks(
            plan, state.pool, state.cache, state.spans, state.tables, request, tokens, state.queues, state.seen
        )
    set_thresholds(plan, state.tables, request, tokens)
    request[COMPUTED] = tokens - 1
    request[STATUS] = WAITING
    return True


@inlined
def next_load_end(state: State) -> int:
    """When the first of the prompts on their way is here, in ns; NEVER when none is on its way."""
    count = state.queues.counters
    if count[NUM_LOADING] == 0:
        return NEVER
    slot = state.queues.lists[LOADING_LIST, 0]
    return i64(state.requests[slot, LOAD_END])


@apart
def hand_over(plan: Plan, state: State, slot: int) -> None:
    """Free a finished request's blocks, those behind its windows first; a prompt to be fetched keeps the others.

    vllm 0.33.0 v1/core/sched/scheduler.py:3369.
    """
    request = state.requests[slot]
    processed = i64(request[COMPUTED] - request[IN_FLIGHT])
    free_skipped(plan, state.pool, state.tables, i64(request[ROW]), processed, i64(request[PROMPT]))
    if plan.kv_role == KV_PRODUCER:
        request[STATUS] = SENDING
    else:
        free(plan, state, slot)


@compiled
def release_sent(plan: Plan, state: State, slot: int, now: int) -> None:
    """Free the blocks of a prompt that was fetched at ``now`` ns; whoever waits for blocks is asked again."""
    count = state.queues.counters
    free(plan, state, slot)
    state.requests[slot, STATUS] = FREE_SLOT
    state.queues.lists[FREE_SLOT_STACK, count[NUM_FREE_SLOTS]] = slot
    count[NUM_FREE_SLOTS] += 1
    state.output.counters[NOW] = max(state.output.counters[NOW], now)
    state.output.counters[IDLE_CALLS] = 0
