"""All KV cache groups together: the longest hit they agree on, what an admission needs, and which blocks get keys.

vllm 0.33.0 v1/core/kv_cache_coordinator.py and the shared part of v1/core/single_type_kv_cache_manager.py.
"""

from __future__ import annotations

import numpy as np

from sim.core import cross, eagle, kinds, mamba, partial
from sim.core._jit import compiled, i64, internal
from sim.core.hashing import NO_KEY, Spans, block_key, prefix_name, seek
from sim.core.kept import note_kept
from sim.core.kv_events import forget, logs_events, note_block, note_stored
from sim.core.prefix_cache import insert
from sim.core.reachable import is_reached, tails
from sim.core.seen import OFFERED, Seen, note_text
from sim.core.state import (
    CACHED,
    CHECKPOINT,
    CIRCULAR,
    CROSS,
    FIRST_SPAN,
    HEAD,
    MAMBA_ALIGN,
    NULL_BLOCK,
    NUM_FRESH,
    NUM_TOKENS,
    REF,
    ROW,
    Cache,
    Int64s,
    Keys,
    Plan,
    Pool,
    Queues,
    Tables,
)

_hit_of_spec = kinds.longest_hit
_num_skipped_blocks = kinds.num_skipped_blocks
_is_cacheable = kinds.is_cacheable
_looks_up_once = kinds.looks_up_once
_encoder_blocks = cross.num_blocks
_needs_checkpoint = mamba.needs_checkpoint
_states_needed = mamba.blocks_needed
_key_checkpoint = mamba.key_checkpoint
_note_fresh = mamba.note_fresh
_key_state_tail = partial.key_state_tail
_key_attention_tail = partial.key_attention_tail
_cacheable_tokens = eagle.cacheable_tokens
_look_up_limit = eagle.look_up_limit
_said_end = eagle.said_end
_full_blocks = eagle.full_blocks
_covered_tokens = eagle.covered_tokens
_END_OF_SEQUENCE = np.uint64(0x2545F4914F6CDD1D)


@internal
def longest_hit(
    plan: Plan, cache: Cache, spans: Spans, request: Int64s, tables: Tables, max_tokens: int, missed: Keys
) -> tuple[int, int]:
    """Tokens of the longest prefix every group can resume from, and of the longest single answer seen on the way.

    Each spec in turn accepts the candidate length or shortens it, until a round shortens nothing:

        full attention   |=========================|   64
        window           |===============|             40 -> ask full again: it holds any shorter prefix
        agreed           |===============|             40, and 64 - 40 is a shared prefix some group does not keep

    Full attention is asked once. For a single group, or full attention and one other spec, a single round is enough. A
    spec that drops its last block does so once per candidate length, for which it may match a block more.
    vllm 0.33.0 v1/core/kv_cache_coordinator.py:808.
    """
    num_specs = plan.spec_offsets.size - 1
    if num_specs == 0:  # circular buffers alone: nothing that could be hit
        return 0, 0
    first_is_full = _looks_up_once(i64(plan.kind[plan.spec_groups[0]]))
    one_round = plan.block_size.size == 1 or (num_specs == 2 and first_is_full)
    hit = max_tokens
    longest = 0
    full_known = False
    full_hit = max_tokens
    dropped = 0  # bits of the specs that dropped their block at this length
    while True:
        current = hit
        for spec in range(num_specs):
            first = i64(plan.spec_groups[plan.spec_offsets[spec]])
            is_full = _looks_up_once(i64(plan.kind[first]))
            if is_full and full_known:
                current = min(current, full_hit)
                continue
            drop = 1 if plan.drops[first] != 0 and dropped >> spec & 1 == 0 else 0
            limit = _look_up_limit(plan, request, first, current) if drop else current
            found = _hit_of_spec(plan, cache, spans, request, tables, spec, limit, drop, missed)
            if drop:
                dropped |= 1 << spec
            elif found < current:
                dropped = 0
            current = found
            if is_full:
                full_hit = current
            longest = max(longest, current)
        full_known = True
        if one_round or current >= hit:
            return current, longest
        hit = current


@compiled
def blocks_needed(
    plan: Plan,
    pool: Pool,
    tables: Tables,
    num_tokens: int,
    hit: int,
    capped: bool,
    prefill_end: int,
    encoder_tokens: int,
) -> int:
    """Free blocks a request without blocks needs for ``num_tokens`` tokens when its first ``hit`` tokens are cached.

        blocks   | skipped | hit, free in the queue | hit, in use | hit in part | new | new |
        counted                    1 each                0           1 more        1     1

    Cached blocks in the free queue count: taking them back uses up free blocks. One in which the hit ends needs another
    one for a copy. ``capped``: for all tokens of a request, whose groups that recycle blocks behind a window need at
    most their admission cap; otherwise for a chunk, beyond which a draft looks ahead.
    vllm 0.33.0 v1/core/single_type_kv_cache_manager.py:187.
    """
    hits = tables.blocks[tables.blocks.shape[0] - 1]
    slots = num_tokens if capped else min(num_tokens + plan.num_lookahead_tokens, plan.max_model_len)
    total = 0
    for g in range(plan.block_size.size):
        size = plan.block_size[g]
        known, copies = 0, 0
        if _is_cacheable(i64(plan.kind[g])):
            known = -(-hit // size)
            copies = known - hit // size
        if plan.kind[g] == CIRCULAR:
            total += 1
            continue
        if plan.kind[g] == CROSS:
            total += _encoder_blocks(encoder_tokens, i64(size))
            continue
        if plan.kind[g] == MAMBA_ALIGN:
            checkpoint = _needs_checkpoint(plan, tables, -1, g, hit, num_tokens, prefill_end)
            total += _states_needed(plan, pool, tables, -1, g, known, num_tokens, checkpoint, copies > 0)
            continue
        required = -(-slots // size) + plan.spec_blocks[g]
        if capped:
            required = min(required, plan.admission_cap[g])
        skipped = _num_skipped_blocks(i64(plan.kind[g]), i64(plan.kept_window[g]), i64(size), hit)
        total += max(required - max(skipped, known), 0) + copies
        for i in range(skipped, known):
            if hits[g, i] != NULL_BLOCK and pool.links[hits[g, i], REF] == 0:
                total += 1
    return total


@internal
def blocks_needed_at_least(plan: Plan, num_tokens: int, longest_hit: int) -> int:
    """A lower bound of :func:`blocks_needed` (capped) over all hits up to ``longest_hit``: none of it in the queue."""
    total = 0
    for g in range(plan.block_size.size):
        if plan.kind[g] in (MAMBA_ALIGN, CIRCULAR, CROSS):
            continue
        size = plan.block_size[g]
        required = min(-(-num_tokens // size) + plan.spec_blocks[g], plan.admission_cap[g])
        total += max(required - longest_hit // size, 0)
    return total


@internal
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
    vllm 0.33.0 v1/core/kv_cache_coordinator.py:359, v1/core/single_type_kv_cache_manager.py:470,
    v1/core/block_pool.py:226.
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
        within = tails(plan, request, g)
        cursor = request[FIRST_SPAN]
        cached = i64(tables.marks[row, g, CACHED])
        first = max(cached, i64(tables.marks[row, g, HEAD]))
        for i in range(first, full_blocks):
            block = i64(tables.blocks[row, g, i])
            if block == NULL_BLOCK or not is_reached(i, within):
                continue
            covered = (i + 1) * size + plan.hash_lookahead
            cursor = seek(spans, cursor, covered)
            name = prefix_name(spans, cursor, covered)
            if plan.hash_lookahead > 0 and covered == request[NUM_TOKENS] and _said_end(request):
                name = _name_of_end(spans, cursor, covered)
            if pool.key[block] != NO_KEY:  # a checkpoint within the block, which now is full
                forget(pool, cache, block)
            insert(pool, cache, block_key(name, np.uint64(g)), block)
            note_block(pool, name)
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


@internal
def _name_of_end(spans: Spans, cursor: int, tokens: int) -> np.uint64:
    """The name of the first ``tokens`` tokens of a text whose last one is the end of the sequence, whoever said it."""
    cursor = seek(spans, cursor, tokens - 1)
    return prefix_name(spans, cursor, tokens - 1) ^ _END_OF_SEQUENCE


@internal
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


@internal
def _note_fresh_states(pool: Pool, tables: Tables, queues: Queues, row: int, group: int, first: int, last: int) -> None:
    """Remember the states among the entries ``first`` … ``last - 1`` of a table, which this step has cached."""
    for i in range(first, last):
        block = tables.blocks[row, group, i]
        if block != NULL_BLOCK:
            _note_fresh(queues, pool.key[block])


@internal
def hits_fresh_state(plan: Plan, pool: Pool, tables: Tables, queues: Queues, hit: int) -> bool:
    """Whether a hit ends on a state that this step is still computing.

    vllm 0.33.0 v1/core/single_type_kv_cache_manager.py:1698.
    """
    if queues.counters[NUM_FRESH] == 0 or hit == 0:
        return False
    for g in range(plan.block_size.size):
        if plan.kind[g] == MAMBA_ALIGN:
            block = tables.blocks[tables.blocks.shape[0] - 1, g, -(-hit // plan.block_size[g]) - 1]
            for i in range(queues.counters[NUM_FRESH]):
                if queues.fresh[i] == pool.key[block]:
                    return True
    return False
