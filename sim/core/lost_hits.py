"""Why a hit ended where it did: for each admission, the tokens it could have had, and what took them.

**Measured against** the longest prefix of the request's text that the run has put through the engine before: tokens
that were offered to the prefix cache (each time a block of the scheduler's size fills) or processed when their request
left, by whatever request, itself before a preemption included; never the request's last known token, which is computed
again. That is what an unlimited cache that keeps everything would hit, so

    hit + tokens lost to each cause = that prefix          (a hit of what was never seen, in chunked local attention
                                                            alone, counts as seen)

A token whose key would look ahead (:mod:`sim.core.eagle`) was seen once the tokens after it that the key covers were
offered too: as far as the request knew them, and without an end of the sequence. So a prompt that parts from all others
at such a token has not lost what precedes it, and as many last tokens of each request are never hit.

What lies beyond it is lost to nobody: text of admitted requests that is still being computed, and text never seen.

**The causes** are told apart by a ladder of caches, each of which can do what the one before can and one thing more;
what a step up the ladder would hit more is lost to that step's cause:

    the cache as it is                                                     the hit
    0 hits do not lose their last block to a draft                         EAGLE_DROP; or REPLAY: it would have been
                                                                           no longer than the window computed again
    1 a window, or a chunk, whose last block is there has the others too   WINDOW_GAP: those were evicted
    2 nothing that ever had a key has lost it                              EVICTED
    3 what was computed got its key whatever the retention interval        NEVER_KEPT; several draft modules: nor
                                                                           what they were to compute again
    4 a state was written at every boundary                                NO_STATE: no chunk ended there
    5 hits end anywhere, not at multiples of a block (or match unit) only  ALIGNMENT

A cause's tokens belong to the first group, in the order vLLM asks them, that could not resume where the next cache
could; those of EAGLE_DROP to none. Groups of one spec keep the same boundaries, so one of them is remembered for all.
"""

from __future__ import annotations

import numpy as np

from sim.core import kinds
from sim.core._jit import i64, internal
from sim.core.hashing import Spans, block_key, prefix_name, seek
from sim.core.kept import KEPT, WRITTEN, first_needed, kept_up_to
from sim.core.prefix_cache import lookup
from sim.core.retention import in_tail, segment_blocks
from sim.core.seen import (
    ADMITTED,
    ALIGNMENT,
    EAGLE_DROP,
    EVICTED,
    L_ADMITTED,
    L_GROUP,
    L_HIT,
    L_LOST,
    L_ORDINAL,
    L_RESUMED,
    L_SEEN,
    L_TOKENS,
    LOST_ROWS,
    NEVER_KEPT,
    NO_STATE,
    OFFERED,
    REPLAY,
    WINDOW_GAP,
    Seen,
    known_prefix,
    note_text,
)
from sim.core.state import (
    CHUNKED_LOCAL,
    FIRST_SPAN,
    MAMBA_ALIGN,
    NUM_TOKENS,
    ORDINAL,
    PREEMPTIONS,
    SKIP_CACHE,
    SLIDING_WINDOW,
    Cache,
    Int64s,
    Plan,
    State,
)

_tail_blocks = kinds.tail_blocks
_looks_up_once = kinds.looks_up_once

_RUN, _LACKS, _REACHED, _WHO, _KEPT_RUN = range(5)


@internal
def explain_hit(plan: Plan, state: State, slot: int, hit: int) -> None:
    """Write the row of a request that is about to be admitted, and remember that it was."""
    seen, request = state.seen, state.requests[slot]
    tokens, first = i64(request[NUM_TOKENS]), i64(request[FIRST_SPAN])
    if request[SKIP_CACHE] == 0:
        row = seen.lost[seen.counters[LOST_ROWS]]
        seen.counters[LOST_ROWS] += 1
        ahead = plan.hash_lookahead
        most = tokens - max(ahead, 1)
        reference = max(min(known_prefix(seen, state.spans, first, tokens, OFFERED) - ahead, most), hit)
        row[L_ORDINAL] = request[ORDINAL]
        row[L_RESUMED] = 1 if request[PREEMPTIONS] > 0 else 0
        row[L_TOKENS] = tokens
        row[L_HIT] = hit
        row[L_SEEN] = reference
        admitted = min(known_prefix(seen, state.spans, first, tokens, ADMITTED) - ahead, most)
        row[L_ADMITTED] = max(admitted, reference)
        row[L_LOST:] = 0
        row[L_GROUP:] = -1
        if reference > hit:
            _climb(plan, state, request, hit, reference)
            _fill(seen, hit, reference, plan.prefix_replay_tokens)
    note_text(seen, state.spans, first, tokens, ADMITTED)


@internal
def _fill(seen: Seen, hit: int, reference: int, replay_tokens: int) -> None:
    """From what each cache of the ladder reaches to what each cause took."""
    row = seen.lost[seen.counters[LOST_ROWS] - 1]
    before = hit
    for cause in range(ALIGNMENT):
        reached = i64(seen.scratch[_REACHED, cause])
        if reached > before:
            row[L_LOST + cause] = reached - before
            row[L_GROUP + cause] = seen.scratch[_WHO, cause]
            before = reached
    row[L_LOST + ALIGNMENT] = reference - before
    if row[L_LOST + EAGLE_DROP] > 0 and hit + row[L_LOST + EAGLE_DROP] <= replay_tokens:
        row[L_LOST + REPLAY] = row[L_LOST + EAGLE_DROP]
        row[L_LOST + EAGLE_DROP] = 0


@internal
def _climb(plan: Plan, state: State, request: Int64s, hit: int, reference: int) -> None:
    """Find how far each cache of the ladder reaches: the boundaries from the last one down to the hit, each once.

    A boundary is within reach of a cache when no group needs a better one. Past the run of full attention, all that is
    asked is what an earlier cache could not do, so once that is settled the search goes on below the run.
    """
    seen, step = state.seen, plan.hit_alignment
    seen.scratch[_REACHED] = -1
    seen.scratch[_WHO] = -1
    nearest = EAGLE_DROP if plan.drops_last_block or plan.prefix_replay_tokens > 0 else WINDOW_GAP
    length = reference - reference % step
    run = _full_runs(plan, state.cache, state.spans, request, seen, hit, length)
    while length > hit:
        settled = seen.scratch[_REACHED, EVICTED] >= 0
        if settled and length > run:
            length = run
            continue
        need, group = EAGLE_DROP, -1
        for spec in range(plan.spec_offsets.size - 1):
            found, who = _needs(plan, state.cache, state.spans, request, seen, spec, length, settled)
            if found > need:
                need, group = found, who
        for cause in range(need, ALIGNMENT):
            if seen.scratch[_REACHED, cause] < 0:
                seen.scratch[_REACHED, cause] = length
                seen.scratch[_WHO, cause] = group
        if need <= nearest:
            return
        length -= step


@internal
def _missing(plan: Plan, cache: Cache, spans: Spans, request: Int64s, spec: int, tokens: int) -> int:
    """The first group of a spec in which no block carries the key of the boundary after ``tokens``, or -1."""
    cursor = seek(spans, i64(request[FIRST_SPAN]), tokens + plan.hash_lookahead)
    name = prefix_name(spans, cursor, tokens + plan.hash_lookahead)
    for j in range(plan.spec_offsets[spec], plan.spec_offsets[spec + 1]):
        if lookup(cache, block_key(name, np.uint64(plan.spec_groups[j]))) < 0:
            return i64(plan.spec_groups[j])
    return -1


@internal
def _missing_from(
    plan: Plan, cache: Cache, spans: Spans, request: Int64s, spec: int, first: int, stop: int
) -> tuple[int, int]:
    """The first block of first … stop that a group of a spec has lost, and that group; ``stop`` and -1: none is."""
    size = i64(plan.block_size[plan.spec_groups[plan.spec_offsets[spec]]])
    for i in range(first, stop):
        group = _missing(plan, cache, spans, request, spec, (i + 1) * size)
        if group >= 0:
            return i, group
    return stop, -1


@internal
def _full_runs(plan: Plan, cache: Cache, spans: Spans, request: Int64s, seen: Seen, hit: int, length: int) -> int:
    """Note for each spec of full attention how far its whole blocks reach, and who lacks the next.

    Returns the last boundary, at most ``length``, that none of them rules out.
    """
    furthest = length
    for spec in range(plan.spec_offsets.size - 1):
        lead = plan.spec_groups[plan.spec_offsets[spec]]
        if _looks_up_once(i64(plan.kind[lead])):
            size = i64(plan.block_size[lead])
            stop, who = _missing_from(plan, cache, spans, request, spec, hit // size, length // size)
            seen.scratch[_RUN, spec] = stop * size
            seen.scratch[_LACKS, spec] = who
            if plan.num_spec_tokens > 0:
                while stop < length // size and _is_kept(plan, spans, request, seen, lead, stop):
                    stop += 1
            seen.scratch[_KEPT_RUN, spec] = stop * size if plan.num_spec_tokens > 0 else length
            inside = size - 1 if plan.partial_hits else 0
            furthest = min(furthest, (seen.scratch[_RUN, spec] + inside) // plan.hit_alignment * plan.hit_alignment)
    return i64(furthest)


@internal
def _needs(
    plan: Plan, cache: Cache, spans: Spans, request: Int64s, seen: Seen, spec: int, length: int, settled: bool
) -> tuple[int, int]:
    """The first cache of the ladder in which a spec's groups can resume at a boundary, and the group that needs it.

    ``settled``: what was evicted is known already, only the caches before are told apart.
    """
    lead = i64(plan.spec_groups[plan.spec_offsets[spec]])
    kind = plan.kind[lead]
    if kind in (SLIDING_WINDOW, CHUNKED_LOCAL):
        return _window_needs(plan, cache, spans, request, seen, spec, length, settled)
    evicted = -1
    if _looks_up_once(i64(kind)):
        whole = length - length % plan.block_size[lead]
        if whole > seen.scratch[_RUN, spec]:
            evicted = i64(seen.scratch[_LACKS, spec])
            if whole > seen.scratch[_KEPT_RUN, spec]:
                return NEVER_KEPT, lead
        if whole == length:
            return (EVICTED, evicted) if evicted >= 0 else (EAGLE_DROP, -1)
    lacks = _missing(plan, cache, spans, request, spec, length)
    if lacks < 0 and evicted < 0:
        return EAGLE_DROP, -1
    kept = KEPT if settled or lacks < 0 else kept_up_to(plan, spans, request, seen, lead, length)
    if kept == KEPT:
        return EVICTED, evicted if evicted >= 0 else lacks
    return (NO_STATE if kind == MAMBA_ALIGN and kept < WRITTEN else NEVER_KEPT), lead


@internal
def _window_needs(
    plan: Plan, cache: Cache, spans: Spans, request: Int64s, seen: Seen, spec: int, length: int, settled: bool
) -> tuple[int, int]:
    """The same for groups that look back on a few blocks: those of a window, or of the chunk so far."""
    lead = i64(plan.spec_groups[plan.spec_offsets[spec]])
    size, window = i64(plan.block_size[lead]), i64(plan.window[lead])
    last = length // size
    first = first_needed(i64(plan.kind[lead]), window, size, length)
    if first >= last:
        return EAGLE_DROP, -1
    lacks_last = _missing(plan, cache, spans, request, spec, last * size)
    _, lacks_other = _missing_from(plan, cache, spans, request, spec, first, last - 1)
    if lacks_last < 0 and lacks_other < 0:
        return EAGLE_DROP, -1
    if not (settled and lacks_last >= 0) and not _ever_kept(plan, spans, request, seen, lead, first, last):
        return NEVER_KEPT, lead
    return (EVICTED, lacks_last) if lacks_last >= 0 else (WINDOW_GAP, lacks_other)


@internal
def _ever_kept(plan: Plan, spans: Spans, request: Int64s, seen: Seen, group: int, first: int, last: int) -> bool:
    """Whether the blocks first … last of a group ever had keys, all of them; without drafts a chunk's always had."""
    if plan.num_spec_tokens == 0 and plan.kind[group] != SLIDING_WINDOW:
        return True
    size = i64(plan.block_size[group])
    need = _tail_blocks(SLIDING_WINDOW, i64(plan.window[group]), size)
    segment = segment_blocks(plan.retention_interval, plan.hit_alignment, size)
    for i in range(last - 1, first - 1, -1):
        noted = plan.num_spec_tokens > 0 or not in_tail(i, need, segment, -1, -1)
        if noted and not _is_kept(plan, spans, request, seen, group, i):
            return False
    return True


@internal
def _is_kept(plan: Plan, spans: Spans, request: Int64s, seen: Seen, group: int, block: int) -> bool:
    """Whether it is remembered that a block of a group had a key."""
    end = (block + 1) * i64(plan.block_size[group])
    return kept_up_to(plan, spans, request, seen, group, end) == KEPT
