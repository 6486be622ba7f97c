"""Which full blocks of a request a later hit can reach, so that they are worth a key.

vllm 0.33.0 v1/core/single_type_kv_cache_manager.py:505-535 and the managers' reachable_block_mask (:1068, :1552).
"""

from __future__ import annotations

from sim.core import eagle, kinds, retention
from sim.core._jit import i64, inlined
from sim.core.state import JUNCTION, MAMBA_ALIGN, PROMPT, SLIDING_WINDOW, Int64s, Plan

_tail_blocks = kinds.tail_blocks
_next_in_tail = retention.next_in_tail
_segment_blocks = retention.segment_blocks
_boundary_end = retention.boundary_end
_replay_boundaries = eagle.replay_boundaries

Tails = tuple[int, int, int, int, int, int, int]
"""Blocks of a tail (-1: all blocks are reached), blocks it lies behind its end, blocks of a segment, four more ends."""


@inlined
def is_past_tails(plan: Plan, request: Int64s, group: int, first: int) -> bool:
    """Whether no block from ``first`` on lies in a tail: under retention 0, when prompt and junction end before it.

    So a decoding request gives the blocks of its windows no keys, and that is seen at once.
    """
    if plan.retention_interval != 0 or _tail_blocks(i64(plan.kind[group]), i64(plan.window[group]), 1) < 0:
        return False
    return bool((first - 1) * plan.block_size[group] >= max(request[PROMPT], request[JUNCTION]))


@inlined
def tails(plan: Plan, request: Int64s, group: int) -> Tails:
    """The tails of a group's table that a request's later siblings can resume after.

    Where hits lose their last block, a window's tail is a block longer and ends one block past the boundary.
    """
    size = i64(plan.block_size[group])
    need = _tail_blocks(i64(plan.kind[group]), i64(plan.window[group]), size)
    shift = 1 if plan.drops[group] != 0 and plan.kind[group] == SLIDING_WINDOW else 0
    step = plan.hit_alignment
    dense = size if plan.kind[group] == MAMBA_ALIGN else step
    segment = _segment_blocks(plan.retention_interval, dense, size)
    if need < 0 or plan.retention_interval < 0:
        return need + shift, shift, segment, -1, -1, -1, -1
    replay, again = _boundary_end(i64(request[PROMPT]) - 1, step, size), -1
    if plan.drops_last_block:
        resend, extension = _replay_boundaries(i64(request[PROMPT]), plan.scheduler_block_size)
        replay, again = resend // size, extension // size
    junction, before = -1, -1
    if request[JUNCTION] > 0:
        junction = _boundary_end(i64(request[JUNCTION]), step, size)
        if plan.drops[group] != 0:  # who parts right after it has no block to lose there
            before = _boundary_end(i64(request[JUNCTION]) - size, step, size)
    return need + shift, shift, segment, replay, junction, again, before


@inlined
def next_reached(index: int, within: Tails) -> int:
    """The first block of a table from ``index`` on that lies in one of the tails; NEVER or more: there is none.

        a tail of 3 blocks that ends one past block 4    | . | . | x | x | x | . |

    >>> within = (3, 1, 0, 4, -1, -1, -1)
    >>> next_reached(0, within), next_reached(3, within), next_reached(5, within) > 1000
    (2, 3, True)
    """
    need, shift, segment, replay, junction, again, before = within
    if need < 0:
        return index
    at = index - shift
    return shift + min(_next_in_tail(at, need, segment, replay, junction), _next_in_tail(at, need, 0, again, before))
