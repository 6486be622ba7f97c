"""KV cache events: which blocks get a key and which lose it, in vLLM's order, while a log of them is kept.

    cache three blocks   BLOCK name, BLOCK name, BLOCK name, STORED group 0, tokens 0 … 12
    take a cached one    REMOVED key
    reset                CLEARED

A row of the log is a word for each of ``EVENT_FIELDS``; BLOCK rows belong to the STORED row that follows. There may be
REMOVED rows between, of blocks whose key is replaced, which vLLM reports first. Without a log nothing is written.
vllm 0.33.0 v1/core/block_pool.py:226 (cache_full_blocks), :447 (cache_partial_block), :603, :842.
"""

from __future__ import annotations

import numpy as np

from sim.core._jit import apart, i64, inlined
from sim.core.hashing import NO_KEY, Spans, prefix_name, seek
from sim.core.prefix_cache import remove
from sim.core.state import FIRST_SPAN, NUM_EVENTS, ORDINAL, Cache, Int64s, Plan, Pool

BLOCK, STORED, REMOVED, CLEARED = range(4)
EV_KIND, EV_NAME, EV_GROUP, EV_SIZE, EV_ORDINAL, EV_START, EV_END = range(7)
EVENT_FIELDS = 7


@inlined
def logs_events(pool: Pool) -> bool:
    """Whether a log is kept."""
    return bool(pool.events.shape[0] != 0)


@apart
def _next_row(pool: Pool, kind: int) -> int:
    """The row to write, of the kind given; the last one again and again when the log is full."""
    row = min(i64(pool.counters[NUM_EVENTS]), pool.events.shape[0] - 1)
    pool.counters[NUM_EVENTS] += 1
    pool.events[row, EV_KIND] = kind
    return i64(row)


@inlined
def forget(pool: Pool, cache: Cache, row: int) -> None:
    """Take the key off a block, or a second key off the cache, and report it."""
    if logs_events(pool):
        pool.events[_next_row(pool, REMOVED), EV_NAME] = pool.key[row]
    remove(pool, cache, row)


@inlined
def note_block(pool: Pool, name: np.uint64) -> None:
    """Report one block of the next STORED row, by the name of the prefix that ends with it."""
    if logs_events(pool):
        pool.events[_next_row(pool, BLOCK), EV_NAME] = name


@inlined
def note_stored(
    plan: Plan, pool: Pool, spans: Spans, request: Int64s, group: int, size: int, start: int, end: int
) -> None:
    """Report that the tokens ``start`` … ``end`` of a request were offered to the cache, in blocks of ``size`` tokens.

    Those of them that got a key were noted before; perhaps none did.
    """
    if logs_events(pool) and end > start:
        _write_stored(plan, pool, spans, request, group, size, start, end)


@apart
def _write_stored(
    plan: Plan, pool: Pool, spans: Spans, request: Int64s, group: int, size: int, start: int, end: int
) -> None:
    parent = NO_KEY
    if start > 0:
        covered = start + plan.hash_lookahead
        parent = prefix_name(spans, seek(spans, i64(request[FIRST_SPAN]), covered), covered)
    row = _next_row(pool, STORED)
    pool.events[row, EV_NAME] = parent
    pool.events[row, EV_GROUP] = group
    pool.events[row, EV_SIZE] = size
    pool.events[row, EV_ORDINAL] = request[ORDINAL]
    pool.events[row, EV_START] = start
    pool.events[row, EV_END] = end


@inlined
def note_cleared(pool: Pool) -> None:
    """Report that the whole cache was cleared."""
    if logs_events(pool):
        _next_row(pool, CLEARED)
