"""Where prefill chunks end when Mamba states are kept at block boundaries (``mamba_cache_mode: align``).

    block 16      0        16       32       48   50 prompt ends
    chunk         |---- up to the budget, cut down to a boundary ---|
    stops         the last boundary below the end, so that its state can be kept (unless the backend exports it from
                  inside the chunk); a shared-prefix junction; the next boundary when a chunk begins inside a block;
                  where hits may end inside a block, the end of the prompt's last hash unit

vllm 0.33.0 v1/core/sched/scheduler.py:566 (_mamba_block_aligned_split).
"""

from __future__ import annotations

from sim.core._jit import apart, i64, inlined
from sim.core.mamba import checkpoint_is_valid, checkpoint_position
from sim.core.state import JUNCTION, NUM_TOKENS, PROMPT, Int64s, Plan, State


@inlined
def clip_chunk(plan: Plan, state: State, slot: int, start: int, num_new: int) -> int:
    """Tokens of a chunk from ``start`` on, at most ``num_new``, that ends where a state can be kept; perhaps 0."""
    request = state.requests[slot]
    prefill_end = i64(max(request[PROMPT], request[NUM_TOKENS] - 1))
    if plan.split_block_size == 0 or start >= prefill_end:
        return num_new
    return _clip(plan, request, start, num_new, prefill_end)


@apart
def _clip(plan: Plan, request: Int64s, start: int, num_new: int, prefill_end: int) -> int:
    """Tokens of a chunk of a prefill that ends at ``prefill_end``; perhaps 0."""
    block = plan.split_block_size
    end = start + num_new
    inside = end >= prefill_end and _exports_checkpoint(plan, start, end, prefill_end)
    if end < prefill_end:
        end = _cut_to_boundary(plan, start, end)
    stop = end
    if start % block != 0 and not inside:
        stop = _earlier(stop, start, (start // block + 1) * block)
    if not inside:
        drops, lookahead = plan.drops_last_block, plan.hash_lookahead
        last = checkpoint_position(i64(request[NUM_TOKENS]), block, drops, lookahead)
        stop = _earlier(stop, start, last)
        if plan.partial_hits:
            tail = checkpoint_position(i64(request[PROMPT]), plan.hash_block_size, drops, lookahead)
            stop = _earlier(stop, start, tail if tail > last else stop)
    junction = request[JUNCTION]
    if start < junction < end:
        exact = plan.junction_states and junction <= request[PROMPT]
        stop = _earlier(stop, start, i64(junction if exact else start + (junction - start) // block * block))
    return i64(max(stop - start, 0))


@inlined
def _earlier(stop: int, start: int, position: int) -> int:
    return position if start < position < stop else stop


@inlined
def _cut_to_boundary(plan: Plan, start: int, end: int) -> int:
    """The last boundary of a chunk that is not the prompt's last; in a block wider than a chunk the end stays."""
    most = plan.max_num_batched_tokens
    if plan.long_prefill_token_threshold > 0:
        most = min(most, plan.long_prefill_token_threshold)
    return chunk_end(start, end, plan.split_block_size, most)


@inlined
def chunk_end(start: int, end: int, block: int, most: int) -> int:
    """Where a chunk ends at the latest that is not the prompt's last: at a boundary, so that its state can be kept.

        block 16:               | 0 … 15 | 16 … 31 | 32 . 40            start 0, end 40 -> 32
        block wider than all    | 0 … 5 . . . . . . . . |               start 0, end 6, of 6 tokens at most -> 6
        chunks, else wait       | 0 . . 8 . . 15 |                      start 8, end 12, of 32 at most -> 0: not now

    >>> chunk_end(0, 40, 16, 64), chunk_end(0, 6, 16, 6), chunk_end(8, 12, 16, 32)
    (32, 6, 0)
    """
    boundary = end // block * block
    return boundary if boundary > start or block <= most else end


@inlined
def _exports_checkpoint(plan: Plan, start: int, end: int, prefill_end: int) -> bool:
    """Whether every group of states can export the prompt's last boundary from inside the final chunk."""
    if plan.split_alignment == 0:
        return False
    position = checkpoint_position(prefill_end, plan.hit_alignment, plan.drops_last_block, plan.hash_lookahead)
    unit, block = plan.hash_block_size, plan.split_block_size
    return checkpoint_is_valid(unit, block, plan.split_alignment, start, end, position)
