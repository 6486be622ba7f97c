"""Which keys of a prefix the cache has no more, and whether a reset of the prefix cache took them.

block 4      | 0 … 3 there | 4 … 7 reset | 8 … 11 evicted |
missing from block 1 on, with resets undone from block 2 on
"""

from __future__ import annotations

import numpy as np

from sim.core._jit import apart, i64
from sim.core.hashing import Spans, block_key, prefix_name, seek
from sim.core.prefix_cache import lookup
from sim.core.seen import EVICTED, NUM_RESETS, RESET, Seen, was_reset
from sim.core.state import FIRST_SPAN, Cache, Int64s, Plan


@apart
def missing(
    plan: Plan, cache: Cache, spans: Spans, request: Int64s, seen: Seen, spec: int, tokens: int, undo_resets: bool
) -> int:
    """The first group of a spec in which no block carries the key of the boundary after ``tokens``, or -1.

    With ``undo_resets`` a key counts as there that a reset of the prefix cache took.
    """
    cursor = seek(spans, i64(request[FIRST_SPAN]), tokens + plan.hash_lookahead)
    name = prefix_name(spans, cursor, tokens + plan.hash_lookahead)
    for j in range(plan.spec_offsets[spec], plan.spec_offsets[spec + 1]):
        key = block_key(name, np.uint64(plan.spec_groups[j]))
        if lookup(cache, key) < 0 and not (undo_resets and was_reset(seen, key)):
            return i64(plan.spec_groups[j])
    return -1


@apart
def lost_by(
    plan: Plan, cache: Cache, spans: Spans, request: Int64s, seen: Seen, spec: int, tokens: int, lacks: int
) -> tuple[int, int]:
    """RESET or EVICTED: what took the key of a boundary that the group ``lacks`` has no more; and in which group."""
    if seen.counters[NUM_RESETS] == 0:
        return EVICTED, lacks
    evicted = missing(plan, cache, spans, request, seen, spec, tokens, True)
    return (EVICTED, evicted) if evicted >= 0 else (RESET, lacks)


@apart
def missing_from(
    plan: Plan,
    cache: Cache,
    spans: Spans,
    request: Int64s,
    seen: Seen,
    spec: int,
    first: int,
    stop: int,
    undo_resets: bool,
) -> tuple[int, int]:
    """The first block of first … stop that a group of a spec has lost, and that group; ``stop`` and -1: none is."""
    size = i64(plan.block_size[plan.spec_groups[plan.spec_offsets[spec]]])
    for i in range(first, stop):
        group = missing(plan, cache, spans, request, seen, spec, (i + 1) * size, undo_resets)
        if group >= 0:
            return i, group
    return stop, -1
