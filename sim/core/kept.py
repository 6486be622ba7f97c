"""Which blocks of a sparse group ever got a key: those in the tails of windows, and states.

Full attention gives every full block a key, so nothing needs to be remembered of it but the tails of prompts where hits
end inside a block; nor of what every multiple of a
retention interval gets. What depends on the request, the end of its prompt and a junction, and where its chunks left
states, is remembered in the map of :mod:`sim.core.seen`, under the block's key in the first group of its spec (the
others keep the same). Beside drafts all of it is remembered: what several modules compute again may
never get a key, and hits that lose a block move the tails.
"""

from __future__ import annotations

import numpy as np

from sim.core import kinds
from sim.core._jit import apart, i64, inlined
from sim.core.hashing import Spans, block_key, prefix_name, seek
from sim.core.mamba import checkpoint_position
from sim.core.partial import tail_boundary
from sim.core.prefix_cache import lookup
from sim.core.retention import kept_ends
from sim.core.seen import NUM_RESETS, Seen, find, note_given, raise_to
from sim.core.state import (
    CACHED,
    FIRST_SPAN,
    JUNCTION,
    MAMBA_ALIGN,
    NULL_BLOCK,
    NUM_TOKENS,
    PROMPT,
    ROW,
    SLIDING_WINDOW,
    Cache,
    Int64s,
    Plan,
    Tables,
)

_tail_blocks = kinds.tail_blocks

WRITTEN, DENIED, KEPT = 1, 2, 3
"""Of a state, that it was written. Of a block, that it was offered to the cache and got no key; that it got one."""
KEPT_COLUMN = 0


@apart
def note_kept(
    plan: Plan,
    cache: Cache,
    seen: Seen,
    spans: Spans,
    tables: Tables,
    request: Int64s,
    group: int,
    start: int,
    num_tokens: int,
    checkpoint: int,
) -> None:
    """Remember what was kept of a group's blocks from ``start`` on, those of ``num_tokens`` tokens, just offered.

    ``checkpoint``: the token at which a state was exported, 0: none was.
    """
    if seen.counters[NUM_RESETS] > 0:
        _note_again(plan, cache, seen, spans, request, group, start, num_tokens, checkpoint)
    if not _is_lead(plan, group):
        return
    size = i64(plan.block_size[group])
    if plan.num_spec_tokens > 0:
        _note_beside_drafts(plan, cache, seen, spans, tables, request, group, start, num_tokens, checkpoint)
        return
    stop = num_tokens // size
    if not plan.partial_hits:
        stop = (num_tokens - num_tokens % plan.scheduler_block_size) // size
    if plan.kind[group] == SLIDING_WINDOW:
        prompt, junction = i64(request[PROMPT]), i64(request[JUNCTION])
        replay_end, junction_end = kept_ends(plan.retention_interval, prompt, junction, plan.hit_alignment, size)
        _note_tail(plan, seen, spans, request, group, start, replay_end, stop)
        _note_tail(plan, seen, spans, request, group, start, junction_end, stop)
    elif plan.kind[group] == MAMBA_ALIGN:
        entries = tables.blocks[request[ROW], group]
        for i in range(start, stop):
            if entries[i] != NULL_BLOCK:
                _note_key(plan, cache, seen, spans, request, group, (i + 1) * size, DENIED)
        _note_key(plan, cache, seen, spans, request, group, checkpoint, DENIED)
    if plan.partial_hits:
        prompt = i64(request[PROMPT])
        tail = checkpoint_position(prompt, plan.hash_block_size, plan.drops_last_block, plan.hash_lookahead)
        _note_key(plan, cache, seen, spans, request, group, tail if tail <= num_tokens else 0, 0)


@apart
def _note_beside_drafts(
    plan: Plan,
    cache: Cache,
    seen: Seen,
    spans: Spans,
    tables: Tables,
    request: Int64s,
    group: int,
    start: int,
    num_tokens: int,
    checkpoint: int,
) -> None:
    """Remember every key there is at the boundaries of blocks that were offered, and at those a tail may end at.

    A block that is full and not offered yet may have a key later, once several modules have computed its end again.
    """
    size = i64(plan.block_size[group])
    otherwise = WRITTEN if plan.kind[group] == MAMBA_ALIGN else 0
    entries = tables.blocks[request[ROW], group]
    offered = tables.marks[request[ROW], group, CACHED]
    for i in range(start, num_tokens // size):
        if entries[i] != NULL_BLOCK:
            what = DENIED if i < offered else otherwise
            _note_key(plan, cache, seen, spans, request, group, (i + 1) * size, what)
    _note_key(plan, cache, seen, spans, request, group, checkpoint, DENIED)
    for position in _tails(plan, request, group, num_tokens):
        _note_key(plan, cache, seen, spans, request, group, position, 0)


@inlined
def _tails(plan: Plan, request: Int64s, group: int, num_tokens: int) -> tuple[int, int, int]:
    """Where tails of a prompt may have keys: of states, of attention, and where a chunk may have ended; 0: not yet."""
    unit, prompt = i64(plan.hash_block_size), i64(request[PROMPT])
    state = checkpoint_position(prompt, unit, plan.drops_last_block, plan.hash_lookahead)
    covered = i64(request[NUM_TOKENS] - plan.hash_lookahead)
    attention = tail_boundary(prompt, covered, unit, plan.drops[group] != 0)
    return (
        state if state <= num_tokens else 0,
        attention if attention <= num_tokens else 0,
        num_tokens - num_tokens % unit,
    )


@apart
def _note_again(
    plan: Plan,
    cache: Cache,
    seen: Seen,
    spans: Spans,
    request: Int64s,
    group: int,
    start: int,
    num_tokens: int,
    checkpoint: int,
) -> None:
    """After a reset: remember of the keys of a group just offered that they are there again."""
    size = i64(plan.block_size[group])
    for i in range(start, num_tokens // size):
        _note_present(plan, cache, seen, spans, request, group, (i + 1) * size)
    _note_present(plan, cache, seen, spans, request, group, checkpoint)
    for position in _tails(plan, request, group, num_tokens):
        _note_present(plan, cache, seen, spans, request, group, position)


@apart
def _note_present(
    plan: Plan, cache: Cache, seen: Seen, spans: Spans, request: Int64s, group: int, position: int
) -> None:
    """Remember that the block before a position has its key again, if it has."""
    covered = position + plan.hash_lookahead
    if position > 0 and covered <= request[NUM_TOKENS]:
        cursor = seek(spans, i64(request[FIRST_SPAN]), covered)
        key = block_key(prefix_name(spans, cursor, covered), np.uint64(group))
        if lookup(cache, key) >= 0:
            note_given(seen, key)


@apart
def _note_key(
    plan: Plan, cache: Cache, seen: Seen, spans: Spans, request: Int64s, group: int, position: int, otherwise: int
) -> None:
    """Remember that the block before a position has its key now; if it has not, remember ``otherwise``."""
    covered = position + plan.hash_lookahead
    if position <= 0 or covered > request[NUM_TOKENS]:
        return
    cursor = seek(spans, i64(request[FIRST_SPAN]), covered)
    key = block_key(prefix_name(spans, cursor, covered), np.uint64(group))
    what = KEPT if lookup(cache, key) >= 0 else otherwise
    if what > 0:
        raise_to(seen, key, KEPT_COLUMN, what)


@inlined
def _is_lead(plan: Plan, group: int) -> bool:
    """Whether a group is the first of its spec, and so the one whose boundaries are remembered."""
    lead = False
    for spec in range(plan.spec_offsets.size - 1):
        lead = lead or plan.spec_groups[plan.spec_offsets[spec]] == group
    return lead


@inlined
def offered_tail(start: int, stop: int, end: int, need: int) -> tuple[int, int]:
    """The blocks, first and one past the last, of the tail before block ``end`` that lie in start … stop - 1.

        need 3, end 8, blocks 4 … 6 offered:   | . . . . | . x x | . .        -> 5, 7

    ``end`` -1: no such boundary, no blocks.

    >>> offered_tail(4, 7, 8, 3), offered_tail(4, 7, -1, 3)
    ((5, 7), (4, -1))
    """
    return max(start, end - need), min(end, stop)


@apart
def _note_tail(
    plan: Plan, seen: Seen, spans: Spans, request: Int64s, group: int, start: int, end: int, stop: int
) -> None:
    """Remember that the blocks of a window's tail before ``end`` get keys now, as far as they lie in start … stop."""
    size = i64(plan.block_size[group])
    need = _tail_blocks(i64(plan.kind[group]), i64(plan.window[group]), size)
    cursor = i64(request[FIRST_SPAN])
    first, last = offered_tail(start, stop, end, need)
    for i in range(first, last):
        cursor = seek(spans, cursor, (i + 1) * size)
        key = block_key(prefix_name(spans, cursor, (i + 1) * size), np.uint64(group))
        raise_to(seen, key, KEPT_COLUMN, KEPT)


@inlined
def first_needed(kind: int, window: int, block_size: int, length: int) -> int:
    """The first block that a request must have to go on after ``length`` tokens: of a window, or of the chunk so far.

        block 4, window 6, after 16 tokens:   | 0 | 1 | 2 x | 3 x |         blocks 2 and 3: token 16 looks back on 11
        block 4, chunk 8, after 12 tokens:    | 0 | 1 | 2 x |               block 2: its chunk begins at token 8

    A window of one token needs its last block all the same, since a hit is found by it.

    >>> (
    ...     first_needed(SLIDING_WINDOW, 6, 4, 16),
    ...     first_needed(SLIDING_WINDOW, 1, 4, 16),
    ...     first_needed(SLIDING_WINDOW, 99, 4, 16),
    ... )
    (2, 3, 0)
    >>> from sim.core.state import CHUNKED_LOCAL
    >>> first_needed(CHUNKED_LOCAL, 8, 4, 12), first_needed(CHUNKED_LOCAL, 8, 4, 16)
    (2, 4)
    """
    if kind == SLIDING_WINDOW:
        return max(length // block_size - max(_tail_blocks(SLIDING_WINDOW, window, block_size), 1), 0)
    return length // window * window // block_size


@inlined
def kept_up_to(plan: Plan, spans: Spans, request: Int64s, seen: Seen, group: int, length: int) -> int:
    """What is remembered of the last block before a boundary; 0: nothing."""
    covered = length + plan.hash_lookahead
    cursor = seek(spans, i64(request[FIRST_SPAN]), covered)
    place = find(seen, block_key(prefix_name(spans, cursor, covered), np.uint64(group)))
    return i64(seen.value[place, KEPT_COLUMN]) if place >= 0 else 0
