"""Mamba, linear attention, short convolution: one state per request, kept at block boundaries in ``align`` mode.

A state replaces the one before, so only the block of the last computed token is needed, and a hit needs exactly one
cached block, the one that ends where the request resumes. Tables therefore have null gaps: a chunk writes its state
into the block it ends in and skips those before.

    chunks of 3 blocks:   | null | null | state |  next chunk  | null | null | state |
    two steps later       | null | null | null, or kept by the prefix cache alone | ...

Mode ``none`` (prefix caching off) is one block, of max_model_len tokens; blocks for speculative states come on top in
both. vllm 0.33.0 v1/core/single_type_kv_cache_manager.py:1420 (MambaManager) and
v1/kv_cache_interface.py (prefill checkpoints).
"""

from __future__ import annotations

import numpy as np

from sim.core._jit import apart, i64, inlined
from sim.core.block_pool import release, release_run, take_run
from sim.core.hashing import NO_KEY, Spans, block_key, prefix_name, seek
from sim.core.kv_events import forget, note_block, note_stored
from sim.core.prefix_cache import insert, lookup
from sim.core.retention import in_tail, segment_blocks
from sim.core.state import (
    ALLOCATED,
    CHECKPOINT,
    FIRST_SPAN,
    HEAD,
    JUNCTION,
    LAST_STATE,
    LENGTH,
    NULL_BLOCK,
    NUM_FRESH,
    PROMPT,
    REF,
    ROW,
    Cache,
    Int64s,
    Plan,
    Pool,
    Queues,
    Tables,
)


@inlined
def checkpoint_position(num_tokens: int, alignment: int, drops: bool, lookahead: int) -> int:
    """The last boundary strictly below ``num_tokens``: its last token is computed again for its logits.

    Where keys look ahead, those tokens stay out too; where hits drop a block, the boundary is one block earlier.

        alignment 16, 33 tokens:   | 0 … 15 | 16 … 31 x 32       -> 32; 3 tokens looked ahead, or a block dropped: 16

    vllm 0.33.0 v1/kv_cache_interface.py:1169.

    >>> checkpoint_position(33, 16, False, 0), checkpoint_position(32, 16, False, 0)
    (32, 16)
    >>> checkpoint_position(33, 16, False, 3), checkpoint_position(33, 16, True, 0)
    (16, 16)
    """
    if drops:
        return max((num_tokens // alignment - 1) * alignment, 0)
    return max((num_tokens - max(lookahead, 1)) // alignment * alignment, 0)


@inlined
def longest_hit(
    plan: Plan, cache: Cache, spans: Spans, request: Int64s, tables: Tables, spec: int, max_tokens: int
) -> int:
    """Tokens before the last cached state in all groups of a spec, found right to left; notes its blocks as hits.

    Only states where hits end count: at multiples of the scheduler block size, or of the hash unit.

        block 16, hits end at multiples of 32   | 0 . | 1 hit | 2 . | 3 miss |           asked at 64, 32 -> null, 1
        the same at multiples of 8              | 0 . | 1 hit | 2 hit at 40 . | 3 . |    -> null, null, 2
    """
    hits = tables.blocks[tables.blocks.shape[0] - 1]
    first = plan.spec_offsets[spec]
    last = plan.spec_offsets[spec + 1]
    size = plan.block_size[plan.spec_groups[first]]
    cursor = request[FIRST_SPAN]
    for end in range(max_tokens // plan.hit_alignment * plan.hit_alignment, 0, -plan.hit_alignment):
        i = -(-end // size) - 1
        cursor = seek(spans, cursor, end + plan.hash_lookahead)
        name = prefix_name(spans, cursor, end + plan.hash_lookahead)
        found = True
        for j in range(first, last):
            group = plan.spec_groups[j]
            block = lookup(cache, block_key(name, np.uint64(group)))
            found = found and block >= 0
            hits[group, i] = block
        if found:
            for j in range(first, last):
                hits[plan.spec_groups[j], :i] = NULL_BLOCK
            return i64(end)
    return 0


@inlined
def needs_checkpoint(plan: Plan, tables: Tables, row: int, group: int, start: int, end: int, prefill_end: int) -> bool:
    """Whether the chunk ``start … end`` must write a second state, at the last boundary before its end.

        block 16, chunk 0 … 40:   | . | state at 32 | running state |    the backend exports the one at 32

    Asked of the tables as they are before the chunk's blocks are taken; ``row`` -1 for a request without tables.
    """
    if plan.checkpoint_alignment[group] == 0 or end < prefill_end:
        return False
    size = plan.block_size[group]
    position = checkpoint_position(end, plan.hit_alignment, plan.drops_last_block, plan.hash_lookahead)
    if not checkpoint_is_valid(plan.hash_block_size, size, plan.checkpoint_alignment[group], start, end, position):
        return False
    index = -(-end // size) - 2
    if index < 0:
        return False
    length = tables.marks[row, group, LENGTH] if row >= 0 else 0
    if index >= length or tables.blocks[row, group, index] == NULL_BLOCK:
        return True
    return bool(tables.marks[row, group, ALLOCATED] != 0 and index >= length - plan.spec_blocks[group])


@inlined
def checkpoint_is_valid(unit: int, size: int, alignment: int, start: int, end: int, position: int) -> bool:
    """Whether the backend can export the state at ``position`` within the chunk ``start … end``.

        block 16, chunk 0 … 40, state wanted at 32:   | . | x at 32 | running |      its block is not the running one's

    vllm 0.33.0 v1/kv_cache_interface.py (is_mamba_prefill_checkpoint_valid).

    >>> checkpoint_is_valid(16, 16, 8, 0, 40, 32), checkpoint_is_valid(16, 16, 8, 0, 16, 0)
    (True, False)
    """
    return bool(
        start % unit == 0
        and -(-end // size) - 2 > (start - 1) // size
        and start + unit <= position
        and start < position < end
        and (position - start) % alignment == 0
    )


@inlined
def blocks_needed(
    plan: Plan, pool: Pool, tables: Tables, row: int, group: int, known: int, end: int, checkpoint: bool, copy: bool
) -> int:
    """Free blocks the group needs for a chunk that ends at ``end``; ``known`` blocks of a hit come first.

    A chunk takes one block for its state, one more for a checkpoint, one for the copy of a block that it would write
    into and, the first time, those of speculative states. The difference may be negative: more blocks than tokens
    (vllm 0.33.0 v1/core/single_type_kv_cache_manager.py:1750).
    """
    length, allocated = 0, False
    if row >= 0:
        length = i64(tables.marks[row, group, LENGTH])
        allocated = bool(tables.marks[row, group, ALLOCATED] != 0)
    new = -(-end // plan.block_size[group]) + plan.spec_blocks[group] - known - length
    if copy:
        new = max(new, 0) + 1
    if new > 0:
        cap = 1 + (1 if checkpoint else 0) + (1 if copy else 0) + (0 if allocated else plan.spec_blocks[group])
        new = min(new, cap)
    if known > 0:
        state_block = tables.blocks[tables.blocks.shape[0] - 1, group, known - 1]
        if pool.links[state_block, REF] == 0:
            new += 1
    return i64(new)


@inlined
def extend(plan: Plan, pool: Pool, cache: Cache, tables: Tables, row: int, group: int, end: int, copied: bool) -> None:
    """Take the blocks of a chunk that ends at ``end``: null entries for those it skips, then its state's.

    ``copied``: a block was taken already, for a copy of the state that the chunk goes on from.

    vllm 0.33.0 v1/core/single_type_kv_cache_manager.py:1860 (allocate_new_blocks).
    """
    marks = tables.marks[row, group]
    entries = tables.blocks[row, group]
    spec = plan.spec_blocks[group]
    checkpoint = 1 if marks[CHECKPOINT] > 0 else 0
    required = -(-end // plan.block_size[group]) + spec
    length = i64(marks[LENGTH])
    allocated = marks[ALLOCATED] != 0
    marks[ALLOCATED] = 1
    if required <= length and checkpoint == 0 and not copied:
        return
    if allocated:
        marks[LAST_STATE] = length - 1 - spec
    elif length > 0:
        marks[LAST_STATE] = length - 1
    skipped = required - spec - 1
    before = length
    while length < skipped - checkpoint:
        entries[length] = NULL_BLOCK
        length += 1
    if allocated:
        for i in range(before - spec, min(before, skipped - checkpoint)):
            entries[length] = entries[i]
            entries[i] = NULL_BLOCK
            length += 1
    take_run(pool, cache, entries, length, required, group)
    marks[LENGTH] = max(length, required)


@inlined
def free_skipped(plan: Plan, pool: Pool, tables: Tables, row: int, group: int, processed: int) -> None:
    """Free the states before the last processed token's, and the one the running state was copied from.

    vllm 0.33.0 v1/core/single_type_kv_cache_manager.py:1603 and :1626.
    """
    if processed <= 0:
        return
    marks = tables.marks[row, group]
    entries = tables.blocks[row, group]
    sentinel = pool.links.shape[0] - 1
    current = (processed - 1) // plan.block_size[group]
    skipped = min(current, i64(marks[LENGTH]))
    if processed > 1 and skipped > marks[HEAD]:
        release_run(pool, entries, i64(marks[HEAD]), skipped)
        entries[marks[HEAD] : skipped] = NULL_BLOCK
        marks[HEAD] = skipped
    last = marks[LAST_STATE]
    if 0 <= last < current and entries[last] != NULL_BLOCK:
        release(pool, i64(entries[last]), sentinel)
        entries[last] = NULL_BLOCK


@inlined
def free_at(plan: Plan, tables: Tables, row: int, group: int) -> int:
    """Processed tokens at which :func:`free_skipped` next has something to do."""
    size = plan.block_size[group]
    marks = tables.marks[row, group]
    at = (marks[HEAD] + 1) * size + 1
    last = marks[LAST_STATE]
    if last >= 0 and tables.blocks[row, group, last] != NULL_BLOCK:
        at = min(at, (last + 1) * size + 1)
    return i64(at)


@apart
def key_checkpoint(
    plan: Plan, pool: Pool, cache: Cache, spans: Spans, tables: Tables, request: Int64s, group: int
) -> np.uint64:
    """Give the checkpoint's block the key of its boundary when it is one to resume at, else none; returns a new key.

    A chunk that computes a part of a hit again has no block for it, as long as the hit's end is ahead.
    vllm 0.33.0 v1/core/single_type_kv_cache_manager.py:2024 (_cache_partial_tail_block).
    """
    position = i64(tables.marks[request[ROW], group, CHECKPOINT])
    block = i64(tables.blocks[request[ROW], group, tables.marks[request[ROW], group, CHECKPOINT + 1]])
    keyed = pool.key[block] != np.uint64(0)
    if block == NULL_BLOCK:
        return np.uint64(0)
    if not is_resumed_at(plan, request, group, position):
        if keyed:
            forget(pool, cache, block)
        return np.uint64(0)
    cursor = seek(spans, request[FIRST_SPAN], position + plan.hash_lookahead)
    name = prefix_name(spans, cursor, position + plan.hash_lookahead)
    key = block_key(name, np.uint64(group))
    if pool.key[block] == key:
        return np.uint64(0)
    if keyed:
        forget(pool, cache, block)
    insert(pool, cache, key, block)
    note_block(pool, name)
    note_stored(plan, pool, spans, request, group, plan.hash_block_size, position - plan.hash_block_size, position)
    return key


@inlined
def is_resumed_at(plan: Plan, request: Int64s, group: int, position: int) -> bool:
    """Whether a state at ``position`` is kept: where a prompt like this one, or its shared part, is resumed."""
    size = plan.block_size[group]
    segment = segment_blocks(plan.retention_interval, size, size)
    if position % size == 0 and in_tail(position // size - 1, 1, segment, -1, -1):
        return True
    prompt = i64(request[PROMPT])
    of_prompt = checkpoint_position(prompt, plan.hit_alignment, plan.drops_last_block, plan.hash_lookahead)
    return bool(position in (of_prompt, request[JUNCTION]))


@inlined
def note_fresh(queues: Queues, key: np.uint64) -> None:
    """Remember a state cached in this step: it exists only once the step has run, so nobody may hit it before."""
    if key != NO_KEY:
        queues.fresh[queues.counters[NUM_FRESH]] = key
        queues.counters[NUM_FRESH] += 1
