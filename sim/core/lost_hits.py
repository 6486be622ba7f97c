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
    2 resets of the prefix cache took no key that was not given since      RESET
    3 nothing that ever had a key has lost it                              EVICTED: its block was taken for something
                                                                           else, or its own request wrote on in it
    4 what was offered got its key whatever the retention interval         NEVER_KEPT
    5 what was computed was offered                                        NOT_FINAL: several draft modules were to
                                                                           compute it again when its request left
    6 a state was written at every boundary                                NO_STATE: no chunk ended there
    7 hits end anywhere, not at multiples of a block (or match unit) only  ALIGNMENT

A cause's tokens belong to the first group, in the order vLLM asks them, that could not resume where the next cache
could; those of EAGLE_DROP to none. Groups of one spec keep the same boundaries, so one of them is remembered for all.
"""

from __future__ import annotations

from sim.core import kinds
from sim.core._jit import apart, i64
from sim.core.hashing import Spans
from sim.core.kept import DENIED, KEPT, WRITTEN, first_needed, kept_up_to
from sim.core.missing import lost_by, missing, missing_from
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
    NOT_FINAL,
    NUM_RESETS,
    OFFERED,
    REPLAY,
    RESET,
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

_RUN, _LACKS, _RESET_RUN, _EVICTED, _KEPT_RUN, _REACHED, _WHO = range(7)


@apart
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


@apart
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


@apart
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


@apart
def _full_runs(plan: Plan, cache: Cache, spans: Spans, request: Int64s, seen: Seen, hit: int, length: int) -> int:
    """Note for each spec of full attention how far its whole blocks reach, with resets undone too, and who lacks next.

    Returns the last boundary, at most ``length``, that none of them rules out.
    """
    furthest = length
    for spec in range(plan.spec_offsets.size - 1):
        lead = plan.spec_groups[plan.spec_offsets[spec]]
        if _looks_up_once(i64(plan.kind[lead])):
            size = i64(plan.block_size[lead])
            last = length // size
            stop, who = missing_from(plan, cache, spans, request, seen, spec, hit // size, last, False)
            seen.scratch[_RUN, spec] = stop * size
            seen.scratch[_LACKS, spec] = who
            if seen.counters[NUM_RESETS] > 0:
                stop, who = missing_from(plan, cache, spans, request, seen, spec, stop, last, True)
            seen.scratch[_RESET_RUN, spec] = stop * size
            seen.scratch[_EVICTED, spec] = who
            inside = size - 1 if plan.partial_hits else 0
            furthest = min(furthest, (stop * size + inside) // plan.hit_alignment * plan.hit_alignment)
            if plan.num_spec_tokens > 0:
                while stop < last and kept_up_to(plan, spans, request, seen, lead, (stop + 1) * size) == KEPT:
                    stop += 1
            seen.scratch[_KEPT_RUN, spec] = stop * size if plan.num_spec_tokens > 0 else length
    return i64(furthest)


@apart
def _needs(
    plan: Plan, cache: Cache, spans: Spans, request: Int64s, seen: Seen, spec: int, length: int, settled: bool
) -> tuple[int, int]:
    """The first cache of the ladder in which a spec's groups can resume at a boundary, and the group that needs it.

    ``settled``: what was evicted is known already, only the caches before are told apart.
    """
    lead = i64(plan.spec_groups[plan.spec_offsets[spec]])
    kind = i64(plan.kind[lead])
    if kind in (SLIDING_WINDOW, CHUNKED_LOCAL):
        return _window_needs(plan, cache, spans, request, seen, spec, length, settled)
    need, who = EAGLE_DROP, -1
    if _looks_up_once(kind):
        whole = length - length % plan.block_size[lead]
        if whole > seen.scratch[_KEPT_RUN, spec]:
            return NOT_FINAL, lead
        if whole > seen.scratch[_RESET_RUN, spec]:
            need, who = EVICTED, i64(seen.scratch[_EVICTED, spec])
        elif whole > seen.scratch[_RUN, spec]:
            need, who = RESET, i64(seen.scratch[_LACKS, spec])
        if whole == length:
            return need, who
    lacks = missing(plan, cache, spans, request, seen, spec, length, False)
    if lacks < 0:
        return need, who
    kept = KEPT if settled else kept_up_to(plan, spans, request, seen, lead, length)
    if kept < KEPT:
        return _never_given(plan, kind, kept), lead
    of_tail, in_group = lost_by(plan, cache, spans, request, seen, spec, length, lacks)
    return (need, who) if need >= of_tail else (of_tail, in_group)


@apart
def _never_given(plan: Plan, kind: int, kept: int) -> int:
    """Why a boundary never had a key: nobody was there, it was not final, or retention kept it from one.

    Of full attention only tails inside a block are asked, of which a prompt's last one alone gets a key.
    """
    if kind == MAMBA_ALIGN and kept < WRITTEN:
        return NO_STATE
    return NOT_FINAL if plan.num_spec_tokens > 0 and kept < DENIED and not _looks_up_once(kind) else NEVER_KEPT


@apart
def _window_needs(
    plan: Plan, cache: Cache, spans: Spans, request: Int64s, seen: Seen, spec: int, length: int, settled: bool
) -> tuple[int, int]:
    """The same for groups that look back on a few blocks: those of a window, or of the chunk so far."""
    lead = i64(plan.spec_groups[plan.spec_offsets[spec]])
    size, kind = i64(plan.block_size[lead]), i64(plan.kind[lead])
    last = length // size
    first = first_needed(kind, i64(plan.window[lead]), size, length)
    if first >= last:
        return EAGLE_DROP, -1
    lacks = missing(plan, cache, spans, request, seen, spec, last * size, False)
    need, who = WINDOW_GAP, lacks
    if lacks >= 0:
        need, who = lost_by(plan, cache, spans, request, seen, spec, last * size, lacks)
    else:
        _, who = missing_from(plan, cache, spans, request, seen, spec, first, last - 1, False)
        if who < 0:
            return EAGLE_DROP, -1
    if settled and need == EVICTED:
        return need, who
    kept = _least_kept(plan, spans, request, seen, lead, first, last)
    return (need, who) if kept == KEPT else (_never_given(plan, kind, kept), lead)


@apart
def _least_kept(plan: Plan, spans: Spans, request: Int64s, seen: Seen, group: int, first: int, last: int) -> int:
    """The least that is remembered of the blocks first … last of a group; without drafts a chunk's all had keys."""
    if plan.num_spec_tokens == 0 and plan.kind[group] != SLIDING_WINDOW:
        return KEPT
    size = i64(plan.block_size[group])
    need = _tail_blocks(SLIDING_WINDOW, i64(plan.window[group]), size)
    segment = segment_blocks(plan.retention_interval, plan.hit_alignment, size)
    least = KEPT
    for i in range(last - 1, first - 1, -1):
        if plan.num_spec_tokens > 0 or not in_tail(i, need, segment, -1, -1):
            least = min(least, kept_up_to(plan, spans, request, seen, group, (i + 1) * size))
    return i64(least)
