"""Handing requests to the machine: a window of the trace at a time, in order of arrival.

Plain Python over columns, called between two stretches of compiled steps. The arrays of live requests grow by doubling
when a window does not fit; slots and spans of finished requests are used again, so memory follows what is live.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from sim.core.hashing import Spans, link_spans
from sim.core.seen import with_room
from sim.core.state import (
    ARRIVAL,
    BATCH_POSITION,
    ENCODER_TOKENS,
    FIRST_SCHEDULED,
    FIRST_SPAN,
    FIRST_TOKEN,
    FREE_SLOT,
    FREE_SLOT_STACK,
    INBOX_HEAD,
    INBOX_RING,
    MAX_TOKENS,
    NUM_FREE_SLOTS,
    NUM_INBOX,
    NUM_TOKENS,
    ORDINAL,
    OUTPUT,
    PRIORITY,
    PROMPT,
    REMOTE,
    REQUEST_FIELDS,
    ROW,
    SKIP_CACHE,
    SPAN_COUNT,
    STATUS,
    TIE,
    WAITING,
    Int64s,
    State,
)

UNUSED_SPANS = 0


class Arrivals(NamedTuple):
    """A window of n requests as columns, sorted by arrival; the spans of request i are offsets[i] … offsets[i+1]."""

    ordinal: NDArray[np.int64]
    arrival_ns: NDArray[np.int64]
    prompt_tokens: NDArray[np.int64]
    output_tokens: NDArray[np.int64]
    max_tokens: NDArray[np.int64]
    priority: NDArray[np.int64]
    tie_rank: NDArray[np.int64]
    skip_cache: NDArray[np.bool_]
    encoder_tokens: NDArray[np.int64]
    salt: NDArray[np.uint64]
    span_offsets: NDArray[np.int64]
    span_content: NDArray[np.uint64]
    span_tokens: NDArray[np.int64]


def submit(state: State, window: Arrivals, *, remote: bool = False) -> State:
    """Put a window of requests into the inbox; returns the state to go on with (arrays may have grown).

    The window is sorted by arrival; among equal arrivals those submitted first come first. An arrival in the past joins
    at the next schedule. ``remote``: their prompts were computed elsewhere and are to be fetched, but for those that do
    not read what is cached.
    """
    n = window.ordinal.size
    if n == 0:
        return state
    state = _make_room(state, n, window.span_content.size)
    queues, count = state.queues, state.queues.counters
    free = count[NUM_FREE_SLOTS]
    slots = queues.lists[FREE_SLOT_STACK, free - n : free][::-1].copy()
    count[NUM_FREE_SLOTS] = free - n
    first = _first_unused_span(state)
    link_spans(window.span_content, window.span_tokens, window.span_offsets, window.salt, state.spans, first)
    state.requests[slots] = _request_rows(window, first)
    if remote:
        state.requests[slots, REMOTE] = ~window.skip_cache
    size = int(count[NUM_INBOX])
    places = (count[INBOX_HEAD] + np.arange(size + n)) % queues.lists.shape[1]
    queues.lists[INBOX_RING, places[size:]] = slots
    if size and state.requests[queues.lists[INBOX_RING, places[size - 1]], ARRIVAL] > window.arrival_ns[0]:
        queued = queues.lists[INBOX_RING, places]
        queues.lists[INBOX_RING, places] = queued[np.argsort(state.requests[queued, ARRIVAL], kind="stable")]
    count[NUM_INBOX] += n
    return with_memory(state)


def _request_rows(window: Arrivals, first_span: int) -> Int64s:
    """The rows of a window's requests as they wait, their spans lying from ``first_span`` on."""
    rows = np.zeros((window.ordinal.size, REQUEST_FIELDS), np.int64)
    for field, column in (
        (ORDINAL, window.ordinal),
        (ARRIVAL, window.arrival_ns),
        (PROMPT, window.prompt_tokens),
        (NUM_TOKENS, window.prompt_tokens),
        (OUTPUT, window.output_tokens),
        (MAX_TOKENS, window.max_tokens),
        (PRIORITY, window.priority),
        (TIE, window.tie_rank),
        (SKIP_CACHE, window.skip_cache),
        (ENCODER_TOKENS, window.encoder_tokens),
        (FIRST_SPAN, first_span + window.span_offsets[:-1]),
        (SPAN_COUNT, np.diff(window.span_offsets)),
    ):
        rows[:, field] = column
    rows[:, [ROW, BATCH_POSITION, FIRST_SCHEDULED, FIRST_TOKEN]] = -1
    rows[:, STATUS] = WAITING
    return rows


def looked_at(window: Arrivals) -> tuple[Spans, Int64s]:
    """The spans of a window of one request, linked, and its row, for whoever asks about it without submitting it."""
    spans = Spans(np.zeros(window.span_content.size, np.uint64), np.zeros((window.span_content.size, 2), np.int64))
    link_spans(window.span_content, window.span_tokens, window.span_offsets, window.salt, spans, 0)
    return spans, _request_rows(window, 0)[0]


def with_memory(state: State) -> State:
    """The state with room to remember the texts of all requests that are here, when the run is explained."""
    if state.seen.key.size == 0:
        return state
    live = state.requests[state.requests[:, STATUS] != FREE_SLOT]
    return state._replace(seen=with_room(state.seen, int(live[:, SPAN_COUNT].sum())))


def _first_unused_span(state: State) -> int:
    live = state.requests[state.requests[:, STATUS] != FREE_SLOT]
    return int((live[:, FIRST_SPAN] + live[:, SPAN_COUNT]).max(initial=UNUSED_SPANS))


def _make_room(state: State, requests: int, spans: int) -> State:
    short = requests - int(state.queues.counters[NUM_FREE_SLOTS])
    if short > 0:
        state = _grow_slots(state, max(short, state.requests.shape[0]))
    if _first_unused_span(state) + spans > state.spans.base.size:
        state = state._replace(spans=_compact_spans(state, spans))
    return state


def _grow_slots(state: State, more: int) -> State:
    """The state with ``more`` additional free slots."""
    old = state.requests.shape[0]
    queues, count = state.queues, state.queues.counters
    requests = np.concatenate([state.requests, np.zeros((more, state.requests.shape[1]), np.int64)])
    head, waiting_inbox = int(count[INBOX_HEAD]), int(count[NUM_INBOX])
    free = int(count[NUM_FREE_SLOTS])
    lists = np.concatenate([queues.lists, np.zeros((len(queues.lists), more), np.int32)], axis=1)
    lists[INBOX_RING, :waiting_inbox] = queues.lists[INBOX_RING, (head + np.arange(waiting_inbox)) % old]
    lists[FREE_SLOT_STACK, :more] = np.arange(old + more - 1, old - 1, -1)
    lists[FREE_SLOT_STACK, more : more + free] = queues.lists[FREE_SLOT_STACK, :free]
    count[INBOX_HEAD] = 0
    count[NUM_FREE_SLOTS] = free + more
    return state._replace(requests=requests, queues=queues._replace(lists=lists))


def _compact_spans(state: State, more: int) -> Spans:
    """Move the spans of live requests to the front of arrays with room for ``more`` (and as many again)."""
    live = np.flatnonzero(state.requests[:, STATUS] != FREE_SLOT)
    counts = state.requests[live, SPAN_COUNT]
    firsts = state.requests[live, FIRST_SPAN]
    total = int(counts.sum())
    moved_to = np.cumsum(counts) - counts
    source = np.repeat(firsts - moved_to, counts) + np.arange(total)
    size = max(state.spans.base.size, 2 * (total + more))

    base = np.zeros(size, np.uint64)
    bounds = np.zeros((size, 2), np.int64)
    base[:total] = state.spans.base[source]
    bounds[:total] = state.spans.bounds[source]
    state.requests[live, FIRST_SPAN] = moved_to
    return Spans(base, bounds)
