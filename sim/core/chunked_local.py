"""Chunked local attention: a token sees its own chunk only, so what lies before the current chunk is not needed.

vllm 0.33.0 v1/core/single_type_kv_cache_manager.py:1275 (ChunkedLocalAttentionManager).
"""

from __future__ import annotations

import numpy as np

from sim.core._jit import apart, i64, inlined
from sim.core.hashing import Spans, block_key, prefix_name, seek
from sim.core.prefix_cache import lookup
from sim.core.state import FIRST_SPAN, NULL_BLOCK, NUM_TOKENS, Cache, Int64s, Plan, Tables


@inlined
def num_skipped_tokens(chunk: int, num_computed: int) -> int:
    """Tokens no later token will look at once ``num_computed`` tokens are computed: those of the chunks before.

        chunk 8, computed 13:   0 … 7 | 8 … 12 | 13     the next token, 13, sees 8 … 13
                                skipped -> 8

    >>> num_skipped_tokens(8, 13), num_skipped_tokens(8, 8), num_skipped_tokens(8, 7)
    (8, 8, 0)
    """
    return num_computed // chunk * chunk


@inlined
def free_at(chunk: int, end_of_block: int) -> int:
    """Processed tokens at which a block that ends at token ``end_of_block`` lies before the current chunk.

    >>> free_at(8, 4), free_at(8, 8), free_at(8, 9)
    (8, 8, 16)
    """
    return -(-end_of_block // chunk) * chunk


@apart
def longest_hit(
    plan: Plan, cache: Cache, spans: Spans, request: Int64s, tables: Tables, spec: int, max_tokens: int
) -> int:
    """Tokens of the longest prefix whose last chunk is cached in all groups of a spec; notes its blocks as hits.

    Blocks before the chunk of token ``max_tokens`` count as computed, as null blocks, without a look-up; from there on
    the run of cached blocks counts, left to right:

        chunk 8, block 4, at most 15 tokens:   | null | null | 2 hit | 3 (not whole) |    -> 12 tokens
                                               | null | null | 2 miss|                    -> 8 tokens
    """
    hits = tables.blocks[tables.blocks.shape[0] - 1]
    first = plan.spec_offsets[spec]
    last = plan.spec_offsets[spec + 1]
    size = plan.block_size[plan.spec_groups[first]]
    chunk = plan.window[plan.spec_groups[first]]
    run = num_skipped_tokens(chunk, max_tokens) // size
    for j in range(first, last):
        hits[plan.spec_groups[j], :run] = NULL_BLOCK
    cursor = request[FIRST_SPAN]
    while (run + 1) * size <= max_tokens and (run + 1) * size + plan.hash_lookahead <= request[NUM_TOKENS]:
        cursor = seek(spans, cursor, (run + 1) * size + plan.hash_lookahead)
        name = prefix_name(spans, cursor, (run + 1) * size + plan.hash_lookahead)
        for j in range(first, last):
            group = plan.spec_groups[j]
            block = lookup(cache, block_key(name, np.uint64(group)))
            if block < 0:
                return i64(run * size)
            hits[group, run] = block
        run += 1
    return i64(run * size)
