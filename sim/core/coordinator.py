"""All KV cache groups together: the longest hit they agree on, and what an admission needs.

vllm 0.33.0 v1/core/kv_cache_coordinator.py and the shared part of v1/core/single_type_kv_cache_manager.py.
"""

from __future__ import annotations

from sim.core import cross, eagle, kinds, mamba
from sim.core._jit import i64, inlined
from sim.core.hashing import Spans
from sim.core.state import (
    CIRCULAR,
    CROSS,
    MAMBA_ALIGN,
    NULL_BLOCK,
    NUM_FRESH,
    REF,
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
_look_up_limit = eagle.look_up_limit


@inlined
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


@inlined
def blocks_needed(
    plan: Plan,
    pool: Pool,
    tables: Tables,
    num_tokens: int,
    hit: int,
    computed: int,
    capped: bool,
    prefill_end: int,
    encoder_tokens: int,
) -> int:
    """Free blocks a request without blocks needs for ``num_tokens`` tokens when its first ``hit`` tokens are cached.

    ``computed``: as many, and those that are fetched behind them.

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
        skipped = _num_skipped_blocks(i64(plan.kind[g]), i64(plan.kept_window[g]), i64(size), computed)
        total += max(required - max(skipped, known), 0) + copies
        for i in range(skipped, known):
            if hits[g, i] != NULL_BLOCK and pool.links[hits[g, i], REF] == 0:
                total += 1
    return total


@inlined
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


@inlined
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
