"""All KV cache groups together: the longest hit they agree on, what a request needs, taking, caching and freeing.

vllm 0.33.0 v1/core/kv_cache_coordinator.py and the shared part of v1/core/single_type_kv_cache_manager.py.
"""

from __future__ import annotations

import numpy as np

from sim.core import kinds
from sim.core._jit import compiled, i64, internal
from sim.core.block_pool import release, take, touch
from sim.core.hashing import Spans, block_key, prefix_name, seek
from sim.core.prefix_cache import insert
from sim.core.state import (
    CACHE_AT,
    CACHED,
    FIRST_SPAN,
    FREE_AT,
    FULL,
    GROW_AT,
    HEAD,
    LENGTH,
    NEVER,
    NULL_BLOCK,
    REF,
    ROW,
    Cache,
    Int64s,
    Keys,
    Plan,
    Pool,
    Tables,
)

_hit_of_spec = kinds.longest_hit
_num_skipped_blocks = kinds.num_skipped_blocks
_free_at = kinds.free_at
_is_reachable = kinds.is_reachable


@internal
def longest_hit(
    plan: Plan, cache: Cache, spans: Spans, request: Int64s, tables: Tables, max_tokens: int, missed: Keys
) -> tuple[int, int]:
    """Tokens of the longest prefix every group can resume from, and of the longest single answer seen on the way.

    Each spec in turn accepts the candidate length or shortens it, until a round shortens nothing:

        full attention   |=========================|   64
        window           |===============|             40 -> ask full again: it holds any shorter prefix
        agreed           |===============|             40, and 64 - 40 is a shared prefix some group does not keep

    Full attention is asked once. With full attention and one other spec a single round is enough.
    vllm 0.33.0 v1/core/kv_cache_coordinator.py:808.
    """
    num_specs = plan.spec_offsets.size - 1
    first_is_full = plan.kind[plan.spec_groups[0]] == FULL
    one_round = num_specs == 1 or (num_specs == 2 and first_is_full)
    hit = max_tokens
    longest = 0
    full_known = False
    full_hit = max_tokens
    while True:
        current = hit
        for spec in range(num_specs):
            is_full = plan.kind[plan.spec_groups[plan.spec_offsets[spec]]] == FULL
            if is_full and full_known:
                current = min(current, full_hit)
                continue
            current = _hit_of_spec(plan, cache, spans, request, tables, spec, current, missed)
            if is_full:
                full_hit = current
            longest = max(longest, current)
        full_known = True
        if one_round or current >= hit:
            return current, longest
        hit = current


@compiled
def blocks_needed(plan: Plan, pool: Pool, tables: Tables, num_tokens: int, hit: int, capped: bool) -> int:
    """Free blocks a request without blocks needs for ``num_tokens`` tokens when its first ``hit`` tokens are cached.

        blocks   | skipped | hit, free in the queue | hit, in use | new | new |
        counted                    1 each                0           1     1

    Cached blocks in the free queue count: taking them back uses up free blocks. ``capped``: a group that recycles
    blocks behind its window needs at most its admission cap. vllm 0.33.0 v1/core/single_type_kv_cache_manager.py:187.
    """
    hits = tables.blocks[tables.blocks.shape[0] - 1]
    total = 0
    for g in range(plan.block_size.size):
        size = plan.block_size[g]
        required = -(-num_tokens // size)
        if capped:
            required = min(required, plan.admission_cap[g])
        skipped = _num_skipped_blocks(plan, g, hit)
        known = hit // size
        total += max(required - max(skipped, known), 0)
        for i in range(skipped, known):
            if hits[g, i] != NULL_BLOCK and pool.links[hits[g, i], REF] == 0:
                total += 1
    return total


@internal
def blocks_needed_at_least(plan: Plan, num_tokens: int, longest_hit: int) -> int:
    """A lower bound of :func:`blocks_needed` (capped) over all hits up to ``longest_hit``: none of it in the queue."""
    total = 0
    for g in range(plan.block_size.size):
        size = plan.block_size[g]
        required = min(-(-num_tokens // size), plan.admission_cap[g])
        total += max(required - longest_hit // size, 0)
    return total


@internal
def adopt_hits(plan: Plan, pool: Pool, tables: Tables, row: int, hit: int) -> None:
    """Begin the tables of an admitted request with the blocks of its hit: null blocks behind the window, then shared.

    vllm 0.33.0 v1/core/single_type_kv_cache_manager.py:266.
    """
    hits = tables.blocks[tables.blocks.shape[0] - 1]
    for g in range(plan.block_size.size):
        size = plan.block_size[g]
        skipped = _num_skipped_blocks(plan, g, hit)
        known = hit // size
        for i in range(skipped):
            tables.blocks[row, g, i] = NULL_BLOCK
        for i in range(skipped, known):
            block = hits[g, i]
            touch(pool, block)
            tables.blocks[row, g, i] = block
        tables.marks[row, g, HEAD] = skipped
        tables.marks[row, g, LENGTH] = known
        tables.marks[row, g, CACHED] = known


@internal
def blocks_missing(plan: Plan, tables: Tables, row: int, num_tokens: int) -> int:
    """New blocks a request with tables needs until they hold ``num_tokens`` tokens."""
    total = 0
    for g in range(plan.block_size.size):
        total += max(-(-num_tokens // plan.block_size[g]) - tables.marks[row, g, LENGTH], 0)
    return total


@internal
def extend(plan: Plan, pool: Pool, cache: Cache, tables: Tables, row: int, num_tokens: int) -> None:
    """Take new blocks, group by group, until the tables hold ``num_tokens`` tokens."""
    for g in range(plan.block_size.size):
        required = -(-num_tokens // plan.block_size[g])
        for i in range(tables.marks[row, g, LENGTH], required):
            tables.blocks[row, g, i] = take(pool, cache)
        tables.marks[row, g, LENGTH] = max(tables.marks[row, g, LENGTH], required)


@internal
def free_skipped(plan: Plan, pool: Pool, tables: Tables, row: int, processed: int) -> None:
    """Free the blocks that lie wholly behind a window once ``processed`` tokens are processed, last one first.

        window 4, block 2, processed 7:   |0 1|2 3|4 5|6 .|    tokens 0..3 are skipped -> blocks 1, 0 are freed

    vllm 0.33.0 v1/core/single_type_kv_cache_manager.py:620 and :647.
    """
    sentinel = pool.links.shape[0] - 1
    for g in range(plan.block_size.size):
        skipped = min(_num_skipped_blocks(plan, g, processed), i64(tables.marks[row, g, LENGTH]))
        front = sentinel
        for i in range(skipped - 1, tables.marks[row, g, HEAD] - 1, -1):
            front = release(pool, i64(tables.blocks[row, g, i]), front)
            tables.blocks[row, g, i] = NULL_BLOCK
        if skipped > tables.marks[row, g, HEAD]:
            tables.marks[row, g, HEAD] = skipped


@internal
def cache_blocks(
    plan: Plan, pool: Pool, cache: Cache, spans: Spans, tables: Tables, request: Int64s, num_tokens: int
) -> None:
    """Give a key to every full block of the first ``num_tokens`` tokens that a later hit can reach.

    Only whole multiples of the scheduler block size can be hit, so what is past the last one waits.
    vllm 0.33.0 v1/core/kv_cache_coordinator.py:359, v1/core/single_type_kv_cache_manager.py:470,
    v1/core/block_pool.py:226.
    """
    row = request[ROW]
    aligned = num_tokens - num_tokens % plan.scheduler_block_size
    for g in range(plan.block_size.size):
        size = plan.block_size[g]
        full_blocks = aligned // size
        cursor = request[FIRST_SPAN]
        for i in range(max(tables.marks[row, g, CACHED], tables.marks[row, g, HEAD]), full_blocks):
            block = i64(tables.blocks[row, g, i])
            if block == NULL_BLOCK or not _is_reachable(plan, request, g, i):
                continue
            cursor = seek(spans, cursor, (i + 1) * size)
            name = prefix_name(spans, cursor, (i + 1) * size)
            insert(pool, cache, block_key(name, np.uint64(g)), block)
        tables.marks[row, g, CACHED] = max(i64(tables.marks[row, g, CACHED]), full_blocks)


@internal
def free_all(pool: Pool, tables: Tables, row: int) -> None:
    """Free a request's blocks group by group, the tail first, so that a cached prefix outlives its continuation.

    vllm 0.33.0 v1/core/single_type_kv_cache_manager.py:567.
    """
    sentinel = pool.links.shape[0] - 1
    for g in range(tables.marks.shape[1]):
        front = sentinel
        for i in range(tables.marks[row, g, LENGTH] - 1, tables.marks[row, g, HEAD] - 1, -1):
            front = release(pool, i64(tables.blocks[row, g, i]), front)


@internal
def set_thresholds(plan: Plan, tables: Tables, request: Int64s) -> None:
    """Note at which token counts the next block must be taken, can be freed or can be cached.

    Between those a decode step does nothing to blocks, and is let through after three comparisons.
    """
    row = request[ROW]
    grow, free, keep = NEVER, NEVER, NEVER
    step = plan.scheduler_block_size
    for g in range(plan.block_size.size):
        size = plan.block_size[g]
        grow = min(grow, tables.marks[row, g, LENGTH] * size)
        free = min(free, _free_at(plan, g, i64(tables.marks[row, g, HEAD])))
        if plan.enable_prefix_caching:
            keep = min(keep, -(-((tables.marks[row, g, CACHED] + 1) * size) // step) * step)
    request[GROW_AT] = grow
    request[FREE_AT] = free
    request[CACHE_AT] = keep
