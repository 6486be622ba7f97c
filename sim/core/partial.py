"""Hits that end inside a block: the tail of a prompt, where its last hash unit ends, can be resumed at.

With ``prefix_match_unit`` finer than the blocks, states in ``align`` mode and full attention keep the block in which
the prompt's last whole unit ends under the key of that boundary. Who hits it must not write into it: he gets a copy.

    block 16, unit 4, prompt 27     | 0 … 15 | 16 … 23 . 24 25 26 |      boundary 24, inside block 1
    hit at 24 by another request    | shared | copy of block 1    |      one block more than the tokens need

A state at the boundary is overwritten by its own request's next chunk. There the request keeps its block, and a copy
made just before takes the key. A copy is listed for the step (``copies``); until that step is scheduled, source and
destination are held. vllm 0.33.0 v1/core/single_type_kv_cache_manager.py:157, :424, :832 and :2024,
v1/core/sched/scheduler.py:1698.
"""

from __future__ import annotations

import numpy as np

from sim.core._jit import apart, i64, inlined
from sim.core.block_pool import release, take
from sim.core.hashing import NO_KEY, Spans, block_key, prefix_name, seek
from sim.core.kv_events import forget, logs_events, note_block, note_stored
from sim.core.mamba import checkpoint_position, note_fresh
from sim.core.prefix_cache import insert, lookup, remove
from sim.core.second_keys import add_second_key, owner
from sim.core.state import (
    ALLOCATED,
    C_FROM,
    C_GROUP,
    C_TO,
    CACHED,
    COMPUTED,
    COPIED_FROM,
    COPIED_TO,
    FIRST_SPAN,
    JUNCTION,
    LENGTH,
    NULL_BLOCK,
    NUM_COPIES,
    NUM_TOKENS,
    PROMPT,
    REF,
    ROW,
    TAIL,
    Cache,
    Int64s,
    Plan,
    Pool,
    State,
    Tables,
)


@apart
def tail_hit(
    plan: Plan, cache: Cache, spans: Spans, request: Int64s, tables: Tables, spec: int, run: int, max_tokens: int
) -> int:
    """Tokens of a hit of ``run`` whole blocks of full attention, and of the next block up to the last boundary known.

        block 16, unit 4, run 1, at most 30 tokens:   | 0 … 15 | 16 . 20 . 24 . 28 . |   asked at 28, 24, 20

    What is noted as the last hit may be a second key. vllm 0.33.0 v1/core/single_type_kv_cache_manager.py:790.
    """
    hits = tables.blocks[tables.blocks.shape[0] - 1]
    first = plan.spec_offsets[spec]
    last = plan.spec_offsets[spec + 1]
    size = plan.block_size[plan.spec_groups[first]]
    unit = plan.hit_alignment
    cursor = request[FIRST_SPAN]
    tokens = min((run + 1) * size - unit, max_tokens // unit * unit)
    while tokens > run * size:
        cursor = seek(spans, cursor, tokens + plan.hash_lookahead)
        name = prefix_name(spans, cursor, tokens + plan.hash_lookahead)
        found = True
        for j in range(first, last):
            group = plan.spec_groups[j]
            row = lookup(cache, block_key(name, np.uint64(group)))
            found = found and row >= 0
            hits[group, run] = row
        if found:
            return i64(tokens)
        tokens -= unit
    return i64(run * size)


@apart
def settle_tails(plan: Plan, pool: Pool, tables: Tables, hit: int) -> None:
    """Put the blocks in the place of second keys among the blocks of a hit that ends inside a block."""
    hits = tables.blocks[tables.blocks.shape[0] - 1]
    for g in range(plan.block_size.size):
        if hit % plan.block_size[g] != 0:
            index = hit // plan.block_size[g]
            hits[g, index] = owner(pool, i64(hits[g, index]))


@inlined
def tail_boundary(prompt: int, covered: int, unit: int, drops: bool) -> int:
    """Where the last hash unit of a prompt ends that a resend can hit: its last token is computed again.

        unit 4, prompt 12:   | 0 … 3 | 4 … 7 | 8 … 11 |        -> 8; where hits lose a unit, the last one proves: 12

    ``covered``: tokens up to which keys exist, less than all known ones where keys look ahead.

    >>> tail_boundary(12, 12, 4, False), tail_boundary(12, 12, 4, True), tail_boundary(13, 13, 4, False)
    (8, 12, 12)
    >>> tail_boundary(13, 11, 4, False)
    8
    """
    return min(prompt if drops else prompt - 1, covered) // unit * unit


@apart
def key_attention_tail(
    plan: Plan,
    pool: Pool,
    cache: Cache,
    spans: Spans,
    tables: Tables,
    request: Int64s,
    group: int,
    num_tokens: int,
) -> None:
    """Let the block of full attention in which the prompt's tail ends be found there, once it is computed.

    A block that has a key by now is full, or was hit as a whole by a request that comes back after a preemption: the
    boundary becomes its second key. Keys that look ahead exist later, so that the boundary may move once: then the
    block is not full, and its key is that of the one before. Where hits end at whole blocks nobody looks the boundary
    up, but a block with a key is reused later. vllm 0.33.0 v1/core/single_type_kv_cache_manager.py:853.
    """
    size = plan.block_size[group]
    unit = plan.hash_block_size
    covered = i64(request[NUM_TOKENS] - plan.hash_lookahead)
    boundary = tail_boundary(i64(request[PROMPT]), covered, unit, plan.drops[group] != 0)
    index = boundary // size
    marks = tables.marks[request[ROW], group]
    if boundary <= 0 or boundary > num_tokens or boundary % size == 0 or index >= marks[LENGTH]:
        return
    block = i64(tables.blocks[request[ROW], group, index])
    if block == NULL_BLOCK:
        return
    cursor = seek(spans, request[FIRST_SPAN], boundary + plan.hash_lookahead)
    name = prefix_name(spans, cursor, boundary + plan.hash_lookahead)
    key = block_key(name, np.uint64(group))
    new = pool.key[block] != key
    if pool.key[block] == NO_KEY:
        insert(pool, cache, key, block)
    elif new and index >= marks[CACHED]:
        forget(pool, cache, block)
        insert(pool, cache, key, block)
    elif new:
        new = (plan.partial_hits or logs_events(pool)) and add_second_key(pool, cache, key, block)
    if new:
        note_block(pool, name)
        note_stored(plan, pool, spans, request, group, unit, boundary - unit, boundary)


@apart
def key_state_tail(
    plan: Plan,
    pool: Pool,
    cache: Cache,
    spans: Spans,
    tables: Tables,
    request: Int64s,
    group: int,
    num_tokens: int,
) -> np.uint64:
    """Give the state of a chunk that ends at the prompt's tail the key of that boundary; returns a new key, or none.

    The request's next chunk will write on: inside a block, a copy has to be made before.
    vllm 0.33.0 v1/core/single_type_kv_cache_manager.py:2091.
    """
    prompt = i64(request[PROMPT])
    boundary = checkpoint_position(prompt, plan.hash_block_size, plan.drops_last_block, plan.hash_lookahead)
    if plan.junction_states and num_tokens == request[JUNCTION] and request[COMPUTED] < num_tokens <= prompt:
        boundary = num_tokens
    if num_tokens != boundary or boundary == 0:
        return NO_KEY
    marks = tables.marks[request[ROW], group]
    size = plan.block_size[group]
    index = -(-boundary // size) - 1
    if index >= marks[LENGTH] or tables.blocks[request[ROW], group, index] == NULL_BLOCK:
        return NO_KEY
    block = i64(tables.blocks[request[ROW], group, index])
    cursor = seek(spans, request[FIRST_SPAN], boundary + plan.hash_lookahead)
    name = prefix_name(spans, cursor, boundary + plan.hash_lookahead)
    key = block_key(name, np.uint64(group))
    if pool.key[block] == key:
        return NO_KEY
    if pool.key[block] != NO_KEY:
        forget(pool, cache, block)
    insert(pool, cache, key, block)
    note_block(pool, name)
    note_stored(plan, pool, spans, request, group, plan.hash_block_size, boundary - plan.hash_block_size, boundary)
    if boundary % size != 0:
        marks[TAIL] = index + 1
        marks[CACHED] = index
    return key


@apart
def copy_tail(pool: Pool, cache: Cache, tables: Tables, row: int, group: int) -> None:
    """Copy the block that others may read before it is written on; both are held until the step is scheduled.

    One just admitted gets the copy. One that runs keeps its block, and the copy takes over its key.
    """
    marks = tables.marks[row, group]
    source = i64(tables.blocks[row, group, marks[TAIL] - 1])
    copy = take(pool, cache, group)
    if marks[ALLOCATED] == 0:
        tables.blocks[row, group, marks[TAIL] - 1] = copy
        pool.links[copy, REF] += 1
    else:
        pool.links[source, REF] += 1
        key = pool.key[source]
        if key != NO_KEY:
            remove(pool, cache, source)
            insert(pool, cache, key, copy)
    marks[TAIL] = 0
    marks[COPIED_FROM] = source
    marks[COPIED_TO] = copy


@apart
def list_copies(plan: Plan, state: State, row: int) -> None:
    """Add the copies made for a request to those of the step; nobody may hit one in this step."""
    count = state.queues.counters
    for g in range(plan.block_size.size):
        marks = state.tables.marks[row, g]
        if marks[COPIED_TO] != 0:
            copy = state.output.copies[count[NUM_COPIES]]
            copy[C_GROUP] = g
            copy[C_FROM] = marks[COPIED_FROM]
            copy[C_TO] = marks[COPIED_TO]
            count[NUM_COPIES] += 1
            note_fresh(state.queues, state.pool.key[marks[COPIED_TO]])
            marks[COPIED_TO] = 0


@apart
def release_copies(plan: Plan, state: State) -> None:
    """Let go of the blocks of the step's copies, group by group, each source before its destination.

    vllm 0.33.0 v1/core/kv_cache_manager.py:861, v1/core/sched/scheduler.py:3095.
    """
    front = i64(state.pool.links.shape[0] - 1)
    for g in range(plan.block_size.size):
        for i in range(state.queues.counters[NUM_COPIES]):
            copy = state.output.copies[i]
            if copy[C_GROUP] == g:
                front = release(state.pool, i64(copy[C_FROM]), front)
                front = release(state.pool, i64(copy[C_TO]), front)
