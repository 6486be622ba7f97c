"""Block tables: begun with the blocks of a hit, extended, freed behind a window, freed as a whole.

The shared part of vllm 0.33.0 v1/core/single_type_kv_cache_manager.py.
"""

from __future__ import annotations

from sim.core import cross, eagle, kinds, mamba, partial, rswa
from sim.core._jit import apart, i64, inlined
from sim.core.block_pool import release_run, take_run, touch
from sim.core.state import (
    ALLOCATED,
    CACHE_AT,
    CACHED,
    CHECKPOINT,
    CHECKPOINT_INDEX,
    CIRCULAR,
    COPIED_TO,
    CROSS,
    FREE_AT,
    GROW_AT,
    HEAD,
    LAST_STATE,
    LENGTH,
    MAMBA_ALIGN,
    NEVER,
    NULL_BLOCK,
    PROMPT,
    ROW,
    RSWA,
    TAIL,
    Cache,
    Int64s,
    Plan,
    Pool,
    Tables,
)

_cacheable_at = eagle.cacheable_at
_tail_at = eagle.tail_at
_num_skipped_blocks = kinds.num_skipped_blocks
_free_at = kinds.free_at
_is_cacheable = kinds.is_cacheable
_encoder_blocks = cross.num_blocks
_checkpoint_position = mamba.checkpoint_position
_needs_checkpoint = mamba.needs_checkpoint
_states_needed = mamba.blocks_needed
_extend_states = mamba.extend
_free_states = mamba.free_skipped
_copy_tail = partial.copy_tail
_states_free_at = mamba.free_at
_gap_start = rswa.gap_start
_gap_end = rswa.gap_end
_gap_free_at = rswa.free_at


@inlined
def adopt_hits(plan: Plan, pool: Pool, tables: Tables, row: int, hit: int, computed: int) -> None:
    """Begin the tables of an admitted request with the blocks of its hit: null blocks behind the window, then shared.

    A block in which the hit ends is shared too, until :func:`extend` puts a copy in its place. ``computed``: tokens of
    the hit, and those that are fetched behind it; the window is that of all.
    vllm 0.33.0 v1/core/single_type_kv_cache_manager.py:266.
    """
    hits = tables.blocks[tables.blocks.shape[0] - 1]
    for g in range(plan.block_size.size):
        size = plan.block_size[g]
        skipped = _num_skipped_blocks(i64(plan.kind[g]), i64(plan.kept_window[g]), i64(size), computed)
        cacheable = _is_cacheable(i64(plan.kind[g]))
        known = -(-hit // size) if cacheable else skipped
        for i in range(skipped):
            tables.blocks[row, g, i] = NULL_BLOCK
        for i in range(skipped, known):
            block = hits[g, i]
            touch(pool, block)
            tables.blocks[row, g, i] = block
        tables.marks[row, g, HEAD] = skipped
        tables.marks[row, g, LENGTH] = max(known, skipped)
        tables.marks[row, g, CACHED] = max(min(known, hit // size), skipped)
        tables.marks[row, g, TAIL] = known if cacheable and hit % size != 0 else 0
        tables.marks[row, g, COPIED_TO] = 0
        tables.marks[row, g, LAST_STATE] = -1
        tables.marks[row, g, ALLOCATED] = 0
        tables.marks[row, g, CHECKPOINT] = 0


@inlined
def blocks_missing(plan: Plan, pool: Pool, tables: Tables, row: int, num_tokens: int) -> int:
    """New blocks a request with tables needs for ``num_tokens`` tokens and what its draft looks ahead."""
    slots = min(num_tokens + plan.num_lookahead_tokens, plan.max_model_len)
    total = 0
    for g in range(plan.block_size.size):
        if plan.kind[g] == MAMBA_ALIGN:
            checkpoint = tables.marks[row, g, CHECKPOINT] > 0
            copy = tables.marks[row, g, TAIL] > 0
            total += _states_needed(plan, pool, tables, row, g, 0, num_tokens, checkpoint, copy)
        else:
            total += max(_entries(plan, g, slots, 0) - tables.marks[row, g, LENGTH], 0)
    return total


@inlined
def _entries(plan: Plan, group: int, num_tokens: int, encoder_tokens: int) -> int:
    """Entries a table must have to hold ``num_tokens`` tokens, or for cross attention those of the encoder."""
    if plan.kind[group] == CIRCULAR:
        return 1
    if plan.kind[group] == CROSS:
        return _encoder_blocks(encoder_tokens, i64(plan.block_size[group]))
    return i64(-(-num_tokens // plan.block_size[group]) + plan.spec_blocks[group])


@apart
def plan_checkpoints(plan: Plan, tables: Tables, row: int, start: int, end: int, prefill_end: int) -> bool:
    """Note for each group of states whether the chunk ``start … end`` writes a checkpoint besides its last state.

    Whether one of them does.
    """
    found = False
    for g in range(plan.block_size.size):
        if plan.kind[g] == MAMBA_ALIGN:
            marks = tables.marks[row, g]
            marks[CHECKPOINT] = 0
            if _needs_checkpoint(plan, tables, row, g, start, end, prefill_end):
                drops, lookahead = plan.drops_last_block, plan.hash_lookahead
                marks[CHECKPOINT] = _checkpoint_position(end, plan.hit_alignment, drops, lookahead)
                marks[CHECKPOINT_INDEX] = -(-end // plan.block_size[g]) - 2
                found = True
    return found


@inlined
def extend(
    plan: Plan, pool: Pool, cache: Cache, tables: Tables, row: int, num_tokens: int, encoder_tokens: int
) -> None:
    """Take new blocks, group by group, until the tables hold ``num_tokens`` tokens; one for a copy comes first.

    ``encoder_tokens``: those of a request that is being admitted, else 0: what it has of them it keeps. Beyond the
    tokens a draft looks ahead, but it has no states.
    """
    slots = min(num_tokens + plan.num_lookahead_tokens, plan.max_model_len)
    for g in range(plan.block_size.size):
        copied = tables.marks[row, g, TAIL] > 0
        if copied:
            _copy_tail(pool, cache, tables, row, g)
        if plan.kind[g] == MAMBA_ALIGN:
            _extend_states(plan, pool, cache, tables, row, g, num_tokens, copied)
            continue
        required = _entries(plan, g, slots, encoder_tokens)
        take_run(pool, cache, tables.blocks[row, g], i64(tables.marks[row, g, LENGTH]), required, g)
        tables.marks[row, g, LENGTH] = max(tables.marks[row, g, LENGTH], required)


@inlined
def free_skipped(plan: Plan, pool: Pool, tables: Tables, row: int, processed: int, prompt: int) -> None:
    """Free the blocks that lie wholly behind a window once ``processed`` tokens are processed, last one first.

        window 4, block 2, processed 7:   |0 1|2 3|4 5|6 .|    tokens 0..3 are skipped -> blocks 1, 0 are freed

    vllm 0.33.0 v1/core/single_type_kv_cache_manager.py:620 and :647.
    """
    for g in range(plan.block_size.size):
        if plan.kind[g] == MAMBA_ALIGN:
            _free_states(plan, pool, tables, row, g, processed)
            continue
        if plan.kind[g] == RSWA:
            _free_gap(plan, pool, tables, row, g, processed, prompt)
            continue
        skipped = _num_skipped_blocks(i64(plan.kind[g]), i64(plan.kept_window[g]), i64(plan.block_size[g]), processed)
        skipped = min(skipped, i64(tables.marks[row, g, LENGTH]))
        head = i64(tables.marks[row, g, HEAD])
        if skipped > head:
            release_run(pool, tables.blocks[row, g], head, skipped)
            tables.blocks[row, g, head:skipped] = NULL_BLOCK
            tables.marks[row, g, HEAD] = skipped


@apart
def _free_gap(plan: Plan, pool: Pool, tables: Tables, row: int, group: int, processed: int, prompt: int) -> None:
    """Free the outputs of an R-SWA group that its window has left behind."""
    marks = tables.marks[row, group]
    size = i64(plan.block_size[group])
    first = max(i64(marks[LAST_STATE]), _gap_start(prompt, size))
    last = min(_gap_end(prompt, i64(plan.window[group]), size, processed), i64(marks[LENGTH]))
    if last > first:
        release_run(pool, tables.blocks[row, group], first, last)
        tables.blocks[row, group, first:last] = NULL_BLOCK
        marks[LAST_STATE] = last


@inlined
def free_all(pool: Pool, tables: Tables, row: int) -> None:
    """Free a request's blocks group by group, the tail first, so that a cached prefix outlives its continuation.

    vllm 0.33.0 v1/core/single_type_kv_cache_manager.py:567.
    """
    for g in range(tables.marks.shape[1]):
        release_run(pool, tables.blocks[row, g], i64(tables.marks[row, g, HEAD]), i64(tables.marks[row, g, LENGTH]))


@inlined
def set_thresholds(plan: Plan, tables: Tables, request: Int64s, cached: int) -> None:
    """Note at which token counts the next block must be taken, can be freed or can be cached.

    ``cached``: tokens offered to the prefix cache so far. Between the thresholds a decode step does nothing to blocks,
    and is let through after three comparisons.
    """
    set_grow_at(plan, tables, request, cached)
    set_free_at(plan, tables, request)
    set_cache_at(plan, tables, request, cached)


@inlined
def set_grow_at(plan: Plan, tables: Tables, request: Int64s, cached: int) -> None:
    """Note up to how many tokens the tables have blocks for, those a draft looks ahead counted in."""
    row = request[ROW]
    grow = NEVER
    for g in range(plan.block_size.size):
        if plan.kind[g] in (CIRCULAR, CROSS):
            continue
        room = (tables.marks[row, g, LENGTH] - plan.spec_blocks[g]) * plan.block_size[g]
        if plan.kind[g] == MAMBA_ALIGN:
            grow = min(grow, room)
            if tables.marks[row, g, TAIL] > 0 and plan.num_spec_tokens == 0:  # else every chunk asks for blocks
                grow = min(grow, cached)  # the next chunk needs a copy first
        elif room < plan.max_model_len:
            grow = min(grow, room - plan.num_lookahead_tokens)
    request[GROW_AT] = grow


@inlined
def set_free_at(plan: Plan, tables: Tables, request: Int64s) -> None:
    """Note at how many processed tokens some group has a block to free."""
    row = request[ROW]
    free = NEVER
    for g in range(plan.block_size.size):
        kind, size = i64(plan.kind[g]), i64(plan.block_size[g])
        if kind == MAMBA_ALIGN:
            free = min(free, _states_free_at(plan, tables, row, g))
        elif kind == RSWA:
            following = max(i64(tables.marks[row, g, LAST_STATE]), _gap_start(i64(request[PROMPT]), size))
            free = min(free, _gap_free_at(i64(plan.window[g]), size, following))
        else:
            free = min(free, _free_at(kind, i64(plan.kept_window[g]), size, i64(tables.marks[row, g, HEAD])))
    request[FREE_AT] = free


@inlined
def set_cache_at(plan: Plan, tables: Tables, request: Int64s, cached: int) -> None:
    """Note at how many tokens some group has a block to cache, or the tail of a prompt.

    Where drafts are verified without the token before them, rejecting them may take back processed tokens: no count is
    passed for good, and blocks are offered each time.
    """
    if plan.asks_for_drafts:
        request[CACHE_AT] = 0 if plan.enable_prefix_caching else NEVER
        return
    row = request[ROW]
    step = 1 if plan.partial_hits else plan.scheduler_block_size
    keep = _tail_at(plan, request, cached) if plan.partial_hits else NEVER
    for g in range(plan.block_size.size):
        if plan.enable_prefix_caching and _is_cacheable(i64(plan.kind[g])):
            block = i64(tables.marks[row, g, CACHED])
            if plan.num_spec_tokens > 0:
                keep = min(keep, _cacheable_at(plan, g, block))
            else:
                keep = min(keep, -(-((block + 1) * plan.block_size[g]) // step) * step)
    request[CACHE_AT] = keep
