"""Where vLLM's own scheduler ends with an exception: settings it starts with, until a request comes along.

A step notes that vLLM would not have survived it, and :func:`sim.core.advance.advance` goes no further.
"""

from __future__ import annotations

from sim.core._jit import compiled
from sim.core.state import FAILURE, Int64s

NO_FAILURE, PADDING_CUT, STATE_WITHOUT_KEY, LOOK_UP_WITHOUT_KEY = range(4)
"""None; the three below. The first failure of a run is kept.

PADDING_CUT           a request with one token left and places for drafts is cut by a threshold:
                      an assertion (vllm 0.33.0 v1/core/sched/scheduler.py:1579)
STATE_WITHOUT_KEY     a state is exported at a boundary among drafts, whose tokens have no key yet: an assertion
                      (vllm 0.33.0 v1/core/block_pool.py:612)
LOOK_UP_WITHOUT_KEY   a look-up from the right begins at a block whose key takes more tokens than there are: an index
                      error (vllm 0.33.0 v1/core/single_type_kv_cache_manager.py:1018)
"""


@compiled
def fail(counters: Int64s, why: int) -> None:
    """Note why vLLM fails in this step; ``counters`` are those of the queues."""
    if counters[FAILURE] == NO_FAILURE:
        counters[FAILURE] = why
