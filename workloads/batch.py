"""Requests as columns: what every reader and generator yields and the simulator consumes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from operator import itemgetter
from typing import Any, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from workloads.content import I64, U64

Bool: TypeAlias = NDArray[np.bool_]
T = TypeVar("T")

OPEN_LOOP = -1
"""``think_ns`` of a request that waits for no other."""


@dataclass(frozen=True, slots=True)
class RequestBatch:
    """n requests, sorted by arrival (equal arrivals in file order), as n-long columns.

    A request is a list of spans ``(content, tokens)``: the first ``tokens`` tokens of the endless text ``content``.
    The spans of request i are ``span_content[span_offsets[i]:span_offsets[i + 1]]`` with their ``span_tokens``; the
    first ``prompt_spans[i]`` of them make its prompt, the others its output::

        request i   |-- [A, 2048] --|- [B, 195] -|- [C, 275] -|
                    |<---- prompt_tokens[i] ---->|<- output ->|

    ``arrival_ns`` is in nanoseconds. ``max_tokens >= output_tokens``: an output that is shorter ends with an EOS.
    ``salt`` 0 means none. ``encoder_tokens`` 0: if the model has an encoder, its longest input. ``tie_rank`` is the
    rank of the id, as a string, among the requests of equal ``arrival_ns``.

    ``think_ns`` -1: the request arrives at ``arrival_ns``, whatever the server does. From 0 on it is one of a closed
    loop: it arrives ``think_ns`` after the last request of the turn before, in its session, has finished. Its
    ``arrival_ns`` is then that of its session's first request, so a session lies within one run of equal arrivals::

        turn 0   |- answering -|                        turn 1, twice: two calls in parallel
        turn 1                  think |- answering -|
        turn 1                  think ......... |- answering -|
        turn 2                                                 think |- answering -|
    """

    ids: list[str]
    arrival_ns: I64
    prompt_tokens: I64
    output_tokens: I64
    max_tokens: I64
    priority: I64
    skip_cache: Bool
    salt: U64
    sessions: list[str | None]
    span_offsets: I64
    span_content: U64
    span_tokens: I64
    prompt_spans: I64
    tie_rank: I64
    encoder_tokens: I64
    turn: I64
    think_ns: I64

    def __len__(self) -> int:
        return len(self.ids)

    def slice(self, start: int, stop: int) -> RequestBatch:
        """Requests ``start`` to ``stop`` (half-open); the columns are views."""
        first, last = self.span_offsets[start], self.span_offsets[stop]
        return RequestBatch(
            ids=self.ids[start:stop],
            sessions=self.sessions[start:stop],
            span_offsets=self.span_offsets[start : stop + 1] - first,
            span_content=self.span_content[first:last],
            span_tokens=self.span_tokens[first:last],
            **{name: getattr(self, name)[start:stop] for name in ROW_COLUMNS},
        )

    def take(self, order: I64) -> RequestBatch:
        """The requests at the positions ``order``, in that order."""
        counts = np.diff(self.span_offsets)[order]
        spans = ranges(self.span_offsets[order], counts)
        return RequestBatch(
            ids=pick(self.ids, order),
            sessions=pick(self.sessions, order),
            span_offsets=offsets(counts),
            span_content=self.span_content[spans],
            span_tokens=self.span_tokens[spans],
            **{name: getattr(self, name)[order] for name in ROW_COLUMNS},
        )

    def ranked(self) -> RequestBatch:
        """The same requests with ``tie_rank`` filled in; whole runs of equal arrivals must be present."""
        return replace(self, tie_rank=tie_ranks(self.ids, self.arrival_ns))


ROW_COLUMNS = (
    "arrival_ns",
    "prompt_tokens",
    "output_tokens",
    "max_tokens",
    "priority",
    "skip_cache",
    "salt",
    "prompt_spans",
    "tie_rank",
    "encoder_tokens",
    "turn",
    "think_ns",
)


def concat(parts: Sequence[RequestBatch]) -> RequestBatch:
    """The requests of ``parts`` (at least one) one after another."""
    if len(parts) == 1:
        return parts[0]
    counts = np.concatenate([np.diff(part.span_offsets) for part in parts])
    return RequestBatch(
        ids=[text for part in parts for text in part.ids],
        sessions=[text for part in parts for text in part.sessions],
        span_offsets=offsets(counts),
        span_content=np.concatenate([part.span_content for part in parts]),
        span_tokens=np.concatenate([part.span_tokens for part in parts]),
        **{name: np.concatenate([getattr(part, name) for part in parts]) for name in ROW_COLUMNS},
    )


def from_spans(
    ids: list[str],
    arrival_ns: I64,
    prompt_tokens: I64,
    output_tokens: I64,
    prompt_spans: I64,
    span_counts: I64,
    span_content: U64,
    span_tokens: I64,
    **given: Any,
) -> RequestBatch:
    """A batch of n requests, request i with ``span_counts[i]`` spans; columns not ``given`` get their defaults."""
    n = len(ids)
    columns: dict[str, Any] = {
        "max_tokens": output_tokens,
        "priority": np.zeros(n, dtype=np.int64),
        "skip_cache": np.zeros(n, dtype=np.bool_),
        "salt": np.zeros(n, dtype=np.uint64),
        "sessions": [None] * n,
        "tie_rank": np.zeros(n, dtype=np.int64),
        "encoder_tokens": np.zeros(n, dtype=np.int64),
        "turn": np.zeros(n, dtype=np.int64),
        "think_ns": np.full(n, OPEN_LOOP, dtype=np.int64),
        **given,
    }
    return RequestBatch(
        ids=ids,
        arrival_ns=arrival_ns,
        prompt_tokens=prompt_tokens,
        output_tokens=output_tokens,
        prompt_spans=prompt_spans,
        span_offsets=offsets(span_counts),
        span_content=span_content,
        span_tokens=span_tokens,
        **columns,
    )


def from_table(ids: list[str], arrival_ns: I64, content: U64, tokens: I64, **given: Any) -> RequestBatch:
    """A batch of requests with at most k spans each: ``content`` and ``tokens`` are n × k, the last column the output.

    A span of 0 tokens is left out.

    >>> content, tokens = np.array([[1, 2, 3], [1, 4, 5]], dtype=np.uint64), np.array([[8, 2, 6], [0, 7, 9]])
    >>> batch = from_table(["a", "b"], np.array([0, 5]), content, tokens)
    >>> batch.span_content.tolist(), batch.span_offsets.tolist(), batch.prompt_tokens.tolist()
    ([1, 2, 3, 4, 5], [0, 3, 5], [10, 7])
    """
    used = tokens > 0
    return from_spans(
        ids,
        arrival_ns,
        prompt_tokens=tokens[:, :-1].sum(axis=1),
        output_tokens=tokens[:, -1].copy(),
        prompt_spans=used[:, :-1].sum(axis=1),
        span_counts=used.sum(axis=1),
        span_content=content[used],
        span_tokens=tokens[used],
        **given,
    )


def offsets(counts: I64) -> I64:
    """Where each group starts when groups of ``counts`` items lie end to end, and where the last one ends.

    >>> offsets(np.array([2, 0, 3])).tolist()
    [0, 2, 2, 5]
    """
    result = np.zeros(len(counts) + 1, dtype=np.int64)
    np.cumsum(counts, out=result[1:])
    return result


def ranges(starts: I64, counts: I64) -> I64:
    """The indices ``starts[i] .. starts[i] + counts[i] - 1`` of every i, end to end.

    >>> ranges(np.array([5, 0]), np.array([2, 3])).tolist()
    [5, 6, 0, 1, 2]
    """
    where = offsets(counts)
    return np.arange(where[-1], dtype=np.int64) + np.repeat(starts - where[:-1], counts)


def pick(items: list[T], order: I64) -> list[T]:
    """The items at the positions ``order``."""
    if len(order) < 2:
        return [items[i] for i in order.tolist()]
    return list(itemgetter(*order.tolist())(items))


def tie_ranks(ids: list[str], arrival_ns: I64) -> I64:
    """Rank of each id, as a string, among the requests that arrive at the same time (0 where nothing ties).

    >>> tie_ranks(["10", "9", "x", "b"], np.array([0, 0, 1, 2])).tolist()
    [0, 1, 0, 0]
    """
    ranks = np.zeros(len(ids), dtype=np.int64)
    edges = np.flatnonzero(np.diff(arrival_ns)) + 1
    starts = np.concatenate(([0], edges))
    stops = np.concatenate((edges, [len(ids)]))
    tied = stops - starts > 1
    for start, stop in zip(starts[tied].tolist(), stops[tied].tolist(), strict=True):
        by_id = sorted(range(start, stop), key=ids.__getitem__)
        ranks[by_id] = np.arange(stop - start)
    return ranks
