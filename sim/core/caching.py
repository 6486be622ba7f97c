"""Which blocks of a request get a key of the prefix cache once their tokens are known, in all KV cache groups.

vllm 0.33.0 v1/core/kv_cache_coordinator.py:359, v1/core/single_type_kv_cache_manager.py:470, v1/core/block_pool.py:226.
"""

from __future__ import annotations

import numpy as np

from sim.core import eagle, kinds, mamba, partial
from sim.core._jit import i64, inlined
from sim.core.failures import KEYED_TWICE, fail
from sim.core.hashing import NO_KEY, Spans, block_key, prefix_name, seek
from sim.core.kept import note_kept
from sim.core.kv_events import forget, logs_events, note_block, note_stored
from sim.core.prefix_cache import insert
from sim.core.reachable import is_past_tails, next_reached, tails
from sim.core.seen import OFFERED, Seen, note_text
from sim.core.state import (
    CACHED,
    CHECKPOINT,
    FIRST_SPAN,
    HEAD,
    MAMBA_ALIGN,
    NULL_BLOCK,
    NUM_TOKENS,
    ROW,
    Cache,
    Int64s,
    Plan,
    Pool,
    Queues,
    Tables,
)

_is_cacheable = kinds.is_cacheable
_looks_up_once = kinds.looks_up_once
_key_checkpoint = mamba.key_checkpoint
_note_fresh = mamba.note_fresh
_key_state_tail = partial.key_state_tail
_key_attention_tail = partial.key_attention_tail
_cacheable_tokens = eagle.cacheable_tokens
_said_end = eagle.said_end
_full_blocks = eagle.full_blocks
_covered_tokens = eagle.covered_tokens
_END_OF_SEQUENCE = np.uint64(0x2545F4914F6CDD1D)


@inlined
def cache_blocks(
    plan: Plan,
    pool: Pool,
    cache: Cache,
    spans: Spans,
    tables: Tables,
    request: Int64s,
    num_tokens: int,
    queues: Queues,
    seen: Seen,
) -> None:
    """Give a key to every full block of the first ``num_tokens`` tokens that a later hit can reach.

    Only whole multiples of the scheduler block size can be hit, so what is past the last one waits; unless hits may end
    inside a block, where the prompt's tail gets a key as well. vLLM gives it one that nobody looks for in any case,
    which is seen in the KV cache events alone.
    """
    row = request[ROW]
    aligned = num_tokens if plan.partial_hits else num_tokens - num_tokens % plan.scheduler_block_size
    inside = plan.partial_hits or plan.num_spec_tokens > 0 or logs_events(pool)
    for g in range(plan.block_size.size):
        if not _is_cacheable(i64(plan.kind[g])):
            continue
        size = plan.block_size[g]
        full_blocks = aligned // size
        if plan.num_spec_tokens > 0:
            full_blocks = _full_blocks(plan, request, g, num_tokens)
        cached = i64(tables.marks[row, g, CACHED])
        first = max(cached, i64(tables.marks[row, g, HEAD]))
        _key_full_blocks(plan, pool, cache, spans, tables, request, g, first, i64(full_blocks), queues.counters)
        note_stored(plan, pool, spans, request, g, i64(size), i64(cached * size), i64(full_blocks * size))
        tables.marks[row, g, CACHED] = max(cached, full_blocks)
        checkpoint = i64(tables.marks[row, g, CHECKPOINT])
        if plan.kind[g] == MAMBA_ALIGN or inside:
            _key_tail(plan, pool, cache, spans, tables, request, g, num_tokens, queues)
        if plan.kind[g] == MAMBA_ALIGN:
            _note_fresh_states(pool, tables, queues, i64(row), g, first, i64(full_blocks))
        if seen.key.size > 0:
            note_kept(plan, cache, seen, spans, tables, request, g, first, num_tokens, checkpoint)
    if seen.key.size > 0:
        note_text(seen, spans, i64(request[FIRST_SPAN]), _covered_tokens(plan, request, num_tokens), OFFERED)


@inlined
def _key_full_blocks(
    plan: Plan,
    pool: Pool,
    cache: Cache,
    spans: Spans,
    tables: Tables,
    request: Int64s,
    group: int,
    first: int,
    last: int,
    counters: Int64s,
) -> None:
    """Give the entries ``first`` … ``last - 1`` of a table their keys, as far as a later hit can reach them.

    ``counters``: those of the queues, where it is noted if one has its key already, which vLLM does not survive.
    """
    if last <= first or is_past_tails(plan, request, group, first):
        return
    row, size = request[ROW], plan.block_size[group]
    within = tails(plan, request, group)
    cursor = request[FIRST_SPAN]
    i = next_reached(first, within)
    while i < last:
        block = i64(tables.blocks[row, group, i])
        if block != NULL_BLOCK:
            covered = (i + 1) * size + plan.hash_lookahead
            cursor = seek(spans, cursor, covered)
            name = prefix_name(spans, cursor, covered)
            if plan.hash_lookahead > 0 and covered == request[NUM_TOKENS] and _said_end(request):
                name = _name_of_end(spans, cursor, covered)
            key = block_key(name, np.uint64(group))
            if pool.key[block] != NO_KEY:  # a checkpoint within the block, which now is full
                if pool.key[block] == key:
                    fail(counters, KEYED_TWICE)
                forget(pool, cache, block)
            insert(pool, cache, key, block)
            note_block(pool, name)
        i = next_reached(i + 1, within)


@inlined
def _name_of_end(spans: Spans, cursor: int, tokens: int) -> np.uint64:
    """The name of the first ``tokens`` tokens of a text whose last one is the end of the sequence, whoever said it."""
    cursor = seek(spans, cursor, tokens - 1)
    return prefix_name(spans, cursor, tokens - 1) ^ _END_OF_SEQUENCE


@inlined
def _key_tail(
    plan: Plan,
    pool: Pool,
    cache: Cache,
    spans: Spans,
    tables: Tables,
    request: Int64s,
    group: int,
    num_tokens: int,
    queues: Queues,
) -> None:
    """Give a key to the state a chunk exports on its way, or to what the prompt's last boundary lies in.

    Beside drafts that boundary may come before the one full blocks have keys at, even where hits end at whole blocks.
    """
    marks = tables.marks[request[ROW], group]
    if plan.kind[group] == MAMBA_ALIGN and marks[CHECKPOINT] > 0:
        _note_fresh(queues, _key_checkpoint(plan, pool, cache, spans, tables, request, group))
        if plan.num_spec_tokens == 0:  # else it is in the way of the prompt's boundary until the next chunk
            marks[CHECKPOINT] = 0
    else:
        final = _cacheable_tokens(plan, group, num_tokens)
        if plan.kind[group] == MAMBA_ALIGN and (plan.partial_hits or plan.num_spec_tokens > 0):
            _note_fresh(queues, _key_state_tail(plan, pool, cache, spans, tables, request, group, final))
        elif plan.block_size[group] > plan.hash_block_size and _looks_up_once(i64(plan.kind[group])):
            _key_attention_tail(plan, pool, cache, spans, tables, request, group, final)


@inlined
def _note_fresh_states(pool: Pool, tables: Tables, queues: Queues, row: int, group: int, first: int, last: int) -> None:
    """Remember the states among the entries ``first`` … ``last - 1`` of a table, which this step has cached."""
    for i in range(first, last):
        block = tables.blocks[row, group, i]
        if block != NULL_BLOCK:
            _note_fresh(queues, pool.key[block])
