"""Sliding-window attention: what is behind the window is freed, and a hit needs only the blocks inside it."""

from __future__ import annotations

import numpy as np

from sim.core._jit import i64, inlined
from sim.core.hashing import Spans, block_key, prefix_name, seek
from sim.core.prefix_cache import lookup
from sim.core.state import FIRST_SPAN, NULL_BLOCK, Cache, Int64s, Plan, Tables


@inlined
def num_skipped_tokens(window: int, num_computed: int) -> int:
    """Tokens no later token will look at once ``num_computed`` tokens are computed.

        window 4, computed 7:   0 1 2 3 4 5 6 | 7     the next token, 7, sees 4 5 6 7
                                skipped -> 4

    vllm 0.33.0 v1/core/single_type_kv_cache_manager.py:1152.

    >>> num_skipped_tokens(4, 7), num_skipped_tokens(4, 3)
    (4, 0)
    """
    return max(0, num_computed - window + 1)


@inlined
def blocks_for_hit(window: int, block_size: int) -> int:
    """Contiguous cached blocks a hit must end with: ceil((window - 1) / block_size).

    vllm 0.33.0 v1/core/single_type_kv_cache_manager.py:932.

    >>> blocks_for_hit(32, 16), blocks_for_hit(1, 16)
    (2, 0)
    """
    return -(-(window - 1) // block_size)


@inlined
def longest_hit(
    plan: Plan, cache: Cache, spans: Spans, request: Int64s, tables: Tables, spec: int, max_tokens: int, drop: int
) -> int:
    """Tokens of the longest prefix whose window is cached in all groups of a spec; notes its blocks as hits.

        blocks   | 0 miss | 1 hit | 2 hit | 3 miss | 4 hit | 5 miss     a hit needs 2 blocks, found right to left
        hit      |------------------------|  3 blocks, block 0 as null

    A shorter run counts only when it starts at token 0. The search starts where hits may end. With ``drop`` 1 a hit
    needs one block more, found past that place, and loses it.
    vllm 0.33.0 v1/core/single_type_kv_cache_manager.py:946.
    """
    first = plan.spec_offsets[spec]
    size = plan.block_size[plan.spec_groups[first]]
    alignment = plan.hit_alignment
    need = blocks_for_hit(plan.window[plan.spec_groups[first]], size) + drop
    cursor = request[FIRST_SPAN]
    run = 0
    for i in range(max_tokens // size - 1, -1, -1):
        cursor = seek(spans, cursor, (i + 1) * size + plan.hash_lookahead)
        name = prefix_name(spans, cursor, (i + 1) * size + plan.hash_lookahead)
        found = _find_in_groups(plan, cache, tables, spec, name, i)
        if not found:
            run = 0
        elif run > 0 or (i + 1 - drop) * size % alignment == 0:
            run += 1
            if run >= need:
                _leave_kept_empty(plan, tables, spec, i, i64((i + run - drop) * size))
                return i64((i + run - drop) * size)
    hit = i64(run * size - run * size % alignment)
    if drop and hit > 0:
        hit -= size
    return i64(hit - hit % alignment)


@inlined
def _leave_kept_empty(plan: Plan, tables: Tables, spec: int, first_found: int, hit: int) -> None:
    """Note null blocks for what several draft modules keep below the window: a hit does not bring it back."""
    hits = tables.blocks[tables.blocks.shape[0] - 1]
    first = plan.spec_groups[plan.spec_offsets[spec]]
    kept = num_skipped_tokens(plan.kept_window[first], hit) // plan.block_size[first]
    for j in range(plan.spec_offsets[spec], plan.spec_offsets[spec + 1]):
        hits[plan.spec_groups[j], kept:first_found] = NULL_BLOCK


@inlined
def _find_in_groups(plan: Plan, cache: Cache, tables: Tables, spec: int, name: np.uint64, index: int) -> bool:
    hits = tables.blocks[tables.blocks.shape[0] - 1]
    for j in range(plan.spec_offsets[spec], plan.spec_offsets[spec + 1]):
        group = plan.spec_groups[j]
        block = lookup(cache, block_key(name, np.uint64(group)))
        if block < 0:
            return False
        hits[group, index] = block
    return True
