"""Full attention: every block is kept until the request ends; a hit is the run of cached blocks from the start."""

from __future__ import annotations

import numpy as np

from sim.core._jit import i64, inlined
from sim.core.hashing import Spans, block_key, prefix_name, seek
from sim.core.partial import tail_hit
from sim.core.prefix_cache import lookup
from sim.core.state import FIRST_SPAN, Cache, Int64s, Keys, Plan, Tables


@inlined
def cut_hit(hit: int, block_size: int, alignment: int, drop: int) -> int:
    """Tokens of a hit that ends where hits end; with ``drop`` 1 without its last block, or unit where those are finer.

        block 4, hits end at multiples of 8:   | 0 … 3 | 4 … 7 | 8 … 11 |      12 tokens -> 8
        dropped:                               | 0 … 3 | 4 … 7 | ------ |       8 tokens -> 8
        block 4, at multiples of 2, dropped:   | 0 … 3 | 4 5 ---             8 tokens -> 6

    >>> cut_hit(12, 4, 8, 0), cut_hit(12, 4, 8, 1), cut_hit(8, 4, 8, 1), cut_hit(8, 4, 2, 1), cut_hit(0, 4, 4, 1)
    (8, 8, 0, 6, 0)
    """
    if drop and hit > 0:
        hit -= min(block_size, alignment)
    return hit - hit % alignment


@inlined
def longest_hit(
    plan: Plan,
    cache: Cache,
    spans: Spans,
    request: Int64s,
    tables: Tables,
    spec: int,
    max_tokens: int,
    drop: int,
    missed: Keys,
) -> int:
    """Tokens of the longest cached prefix of at most ``max_tokens`` in all groups of a spec; notes the blocks as hits.

        blocks   | 0 hit | 1 hit | 2 miss | 3 -- never asked: names are chained, it would miss too
        hit      |-- 2 blocks ---|, rounded down to where hits end, or on into block 2 where they may end inside one

    ``drop``: see :func:`cut_hit`. ``missed[0]`` becomes the key that ended the run: while it is missing, no prefix of
    this text hits further.
    vllm 0.33.0 v1/core/single_type_kv_cache_manager.py:740.
    """
    hits = tables.blocks[tables.blocks.shape[0] - 1]
    first = plan.spec_offsets[spec]
    last = plan.spec_offsets[spec + 1]
    size = plan.block_size[plan.spec_groups[first]]
    cursor = request[FIRST_SPAN]
    run = 0
    while (run + 1) * size <= max_tokens:
        cursor = seek(spans, cursor, (run + 1) * size + plan.hash_lookahead)
        name = prefix_name(spans, cursor, (run + 1) * size + plan.hash_lookahead)
        found = True
        for j in range(first, last):
            group = plan.spec_groups[j]
            key = block_key(name, np.uint64(group))
            block = lookup(cache, key)
            if block < 0:
                missed[0] = key
                found = False
                break
            hits[group, run] = block
        if not found:
            break
        run += 1
    hit = run * size
    if size > plan.hit_alignment:
        hit = tail_hit(plan, cache, spans, request, tables, spec, run, max_tokens)
    return cut_hit(i64(hit), i64(size), plan.hit_alignment, drop)
