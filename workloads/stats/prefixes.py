"""Shared prefixes: how much of each prompt an earlier request began with, in a cache that keeps everything.

A prompt is a path of spans from the root: the node of a span is what precedes it and its text, and how far the text
goes is a length. A request hits a span as far as any earlier request went into its node, and goes on to the next span
only if it hit all of this one::

    request 1   |- A, 100 -|- B, 50 -|          node (root, A) was read to 100, node (A 100, B) to 50
    request 2   |- A, 100 -|- B, 80 -|          hits 100 + 50
    request 3   |- A, 90 -|- C, 80 -|           hits 90; (A 90, C) is another node

Everything here is a few sorts of all spans of the trace; no token is looked at.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from workloads.batch import RequestBatch, offsets, ranges
from workloads.content import I64, SESSION, U64, named, named_pair


@dataclass(frozen=True, slots=True)
class Paths:
    """The spans of all requests: of request ``owner``, ``start`` tokens into it, of the ``node``, ``tokens`` long."""

    owner: I64
    start: I64
    node: U64
    tokens: I64
    prompt: np.ndarray[tuple[int], np.dtype[np.bool_]]


def paths(batch: RequestBatch) -> Paths:
    """The spans of a batch with their nodes: a span's node depends on its text and on all that precedes it."""
    counts = np.diff(batch.span_offsets)
    owner = np.repeat(np.arange(len(batch), dtype=np.int64), counts)
    place = ranges(np.zeros_like(counts), counts)
    sums = offsets(batch.span_tokens)
    start = sums[:-1] - sums[batch.span_offsets[:-1]][owner]
    node = np.empty(len(owner), dtype=np.uint64)
    before = named(batch.salt, SESSION)
    # One round per place in the path; the requests that still have spans are those with the most.
    order = np.argsort(-counts, kind="stable")
    longest_first = counts[order]
    for depth in range(int(counts.max(initial=0))):
        rows = order[: int(np.searchsorted(-longest_first, -depth, side="left"))]
        spans = batch.span_offsets[rows] + depth
        node[spans] = named_pair(before[rows], batch.span_content[spans], SESSION)
        before[rows] = named_pair(node[spans], batch.span_tokens[spans], SESSION)
    return Paths(owner, start, node, batch.span_tokens, place < batch.prompt_spans[owner])


def hit_tokens(batch: RequestBatch, *, answers: bool = False) -> I64:
    """Leading tokens of each prompt that earlier requests began with; with ``answers`` their outputs count as well.

    Requests are taken in order, and each is there in full for the next: a bound no server reaches at once.

    >>> from workloads.batch import from_spans
    >>> counts, none = np.array([3, 3, 3]), np.zeros(3, dtype=np.int64)
    >>> contents = np.array([1, 2, 7, 1, 2, 8, 1, 3, 9], dtype=np.uint64)
    >>> tokens = np.array([100, 50, 1, 100, 80, 1, 90, 80, 1])
    >>> prompts = np.array([150, 180, 170])
    >>> batch = from_spans(["1", "2", "3"], none, prompts, none + 1, none + 2, counts, contents, tokens)
    >>> hit_tokens(batch).tolist()
    [0, 150, 90]
    """
    all_spans = paths(batch)
    if not answers:
        all_spans = prompts_of(all_spans)
    seen = seen_before(all_spans)
    spans = np.flatnonzero(all_spans.prompt)
    owner, tokens = all_spans.owner[spans], all_spans.tokens[spans]
    part = np.minimum(seen[spans], tokens)
    # A span counts when every span before it, in its request, was hit to its end.
    missed = np.concatenate(([0], np.cumsum(part < tokens)))
    first = np.searchsorted(owner, np.arange(len(batch)))
    reached = missed[:-1] == missed[first][owner]
    return np.bincount(owner, weights=np.where(reached, part, 0), minlength=len(batch)).astype(np.int64)


def prompts_of(spans: Paths) -> Paths:
    """The spans of prompts alone."""
    kept = spans.prompt
    return Paths(spans.owner[kept], spans.start[kept], spans.node[kept], spans.tokens[kept], spans.prompt[kept])


def seen_before(spans: Paths) -> I64:
    """For each span the most tokens that earlier requests read of its node."""
    order = np.lexsort((spans.owner, spans.node))
    node, tokens = spans.node[order], spans.tokens[order]
    group = np.concatenate(([0], np.cumsum(node[1:] != node[:-1])))
    # A running maximum within each group: the groups are lifted above one another.
    lift = group * (int(tokens.max(initial=0)) + 1)
    running = np.maximum.accumulate(tokens + lift) - lift
    before = np.concatenate(([0], running[:-1]))
    before[np.concatenate(([True], node[1:] != node[:-1]))] = 0
    seen = np.empty_like(before)
    seen[order] = before
    return seen


def whole_blocks(hits: I64, prompts: I64, block_size: int) -> I64:
    """Hit tokens in whole blocks, never the last token of a prompt, as vLLM counts them."""
    return np.minimum(hits // block_size, (prompts - 1) // block_size) * block_size
