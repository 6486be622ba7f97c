"""Where vLLM's own scheduler ends with an exception: settings it starts with, until a request comes along.

A step notes that vLLM would not have survived it, and :func:`sim.core.advance.advance` goes no further.
"""

from __future__ import annotations

from sim.core import mamba
from sim.core._jit import i64, inlined
from sim.core.state import CHECKPOINT, FAILURE, MAMBA_ALIGN, NUM_TOKENS, ROW, Int64s, Plan, Tables

_is_resumed_at = mamba.is_resumed_at

NO_FAILURE, PADDING_CUT, STATE_WITHOUT_KEY, LOOK_UP_WITHOUT_KEY, KEYED_TWICE = range(5)
"""None; the four below. The first failure of a run is kept.

PADDING_CUT           a request with one token left and places for drafts is cut by a threshold:
                      an assertion (vllm 0.33.0 v1/core/sched/scheduler.py:1579)
STATE_WITHOUT_KEY     a state is exported at a boundary among drafts, whose tokens have no key yet: an assertion
                      (vllm 0.33.0 v1/core/block_pool.py:612)
LOOK_UP_WITHOUT_KEY   a look-up from the right begins at a block whose key takes more tokens than there are: an index
                      error (vllm 0.33.0 v1/core/single_type_kv_cache_manager.py:1018)
KEYED_TWICE           a prompt's tail is cached again after rejected drafts took processed tokens back, and a full block
                      behind it once more: an assertion (vllm 0.33.0 v1/core/block_pool.py:295)
"""


@inlined
def fail(counters: Int64s, why: int) -> None:
    """Note why vLLM fails in this step; ``counters`` are those of the queues."""
    if counters[FAILURE] == NO_FAILURE:
        counters[FAILURE] = why


@inlined
def exports_among_drafts(plan: Plan, tables: Tables, request: Int64s) -> bool:
    """Whether a chunk exports a state to be kept at a boundary among its drafts: its key is not known, vLLM fails.

    block 4, known tokens 5, 7 drafts   | 0 … 3 | 4 d d d | d d d d |      checkpoint at 8, keys up to 4
    """
    if not plan.enable_prefix_caching:
        return False
    for g in range(plan.block_size.size):
        position = i64(tables.marks[request[ROW], g, CHECKPOINT])
        unknown = position + plan.hash_lookahead > request[NUM_TOKENS]
        if plan.kind[g] == MAMBA_ALIGN and position > 0 and unknown and _is_resumed_at(plan, request, g, position):
            return True
    return False
