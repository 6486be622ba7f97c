"""From a fit to requests: each draws its lengths, what it shares, and with which earlier request.

It begins as that earlier request did, and goes on with text of its own, so prefixes grow into a tree as in the trace::

    request 7    |------ text 7 ------|
    request 9    |-- text 7 --|-- text 9 --|              shares with the one 2 before
    request 12   |-- text 7 --|-- text 9 --|- text 12 -|  shares with the one 3 before

Sessions, think times and priorities are not fitted: every request comes at its own time.
"""

from __future__ import annotations

import math

import numpy as np

from workloads.batch import RequestBatch, from_spans
from workloads.content import I64, PRIVATE_OUTPUT, PRIVATE_PROMPT, named
from workloads.generate.draws import F64, stream
from workloads.synthesis.fit import Fit

NEAR = 2048
"""How many requests around the drawn one are searched for one with a prefix long enough to share."""

Path = list[tuple[int, int]]


def generate(model: Fit, requests: int, rate: float, seed: int) -> RequestBatch:
    """``requests`` requests like those of the trace, arriving ``rate`` times as fast."""
    prompts, outputs = lengths(model, requests, seed)
    shared, lags = sharing(model, prompts, seed)
    rows = np.arange(requests, dtype=np.int64)
    own, answers = named(rows, PRIVATE_PROMPT).tolist(), named(rows, PRIVATE_OUTPUT).tolist()
    paths: list[Path] = []
    for i, (length, wanted, lag) in enumerate(zip(prompts.tolist(), shared.tolist(), lags.tolist(), strict=True)):
        start = beginning(paths, prompts, i, lag, wanted) if wanted and i else []
        paths.append([*start, (own[i], length - sum(tokens for _, tokens in start))])
    spans = [span for i, path in enumerate(paths) for span in (*path, (answers[i], int(outputs[i])))]
    counts = np.array([len(path) for path in paths], dtype=np.int64)
    return from_spans(
        [str(i) for i in range(requests)],
        model.load.times(requests, rate, seed),
        prompts,
        outputs,
        prompt_spans=counts,
        span_counts=counts + 1,
        span_content=np.array([content for content, _ in spans], dtype=np.uint64),
        span_tokens=np.array([tokens for _, tokens in spans], dtype=np.int64),
    )


def lengths(model: Fit, requests: int, seed: int) -> tuple[I64, I64]:
    """Prompt and output tokens, with the trace's correlation of ranks (a Gaussian copula)."""
    rng = stream(seed, "synth lengths")
    pearson = 2 * math.sin(math.pi * model.correlation / 6)
    one = rng.standard_normal(requests)
    other = pearson * one + math.sqrt(max(1 - pearson**2, 0.0)) * rng.standard_normal(requests)
    return drawn(model.prompt_tokens, normal_ranks(one)), drawn(model.output_tokens, normal_ranks(other))


def normal_ranks(values: F64) -> F64:
    """The share of a standard normal distribution below each value."""
    return np.array([0.5 * math.erfc(-value / math.sqrt(2)) for value in values.tolist()])


def drawn(table: list[float], ranks: F64) -> I64:
    """Whole numbers, at least 1, at these ranks of a table of quantiles."""
    found = np.interp(ranks, np.linspace(0, 1, len(table)), table)
    return np.maximum(np.rint(found), 1).astype(np.int64)


def sharing(model: Fit, prompts: I64, seed: int) -> tuple[I64, I64]:
    """How many tokens each prompt shares, less than all of them, and with the request how many before."""
    rng = stream(seed, "synth sharing")
    bins = np.searchsorted(model.edges, prompts, side="right")
    chances, ranks, lag_ranks = rng.random((3, len(prompts)))
    parts = np.zeros(len(prompts))
    for b, table in enumerate(model.parts):
        rows = np.flatnonzero((bins == b) & (chances < model.sharing[b]))
        if table:
            parts[rows] = np.interp(ranks[rows], np.linspace(0, 1, len(table)), table)
    shared = np.minimum(np.rint(parts * prompts).astype(np.int64), prompts - 1)
    lags = np.ones_like(prompts)
    lag_bins = np.searchsorted(model.lag_edges, shared, side="right")
    for b, table in enumerate(model.lags):
        rows = np.flatnonzero(lag_bins == b)
        if table:
            lags[rows] = drawn(table, lag_ranks[rows])
    return shared, lags


def beginning(paths: list[Path], prompts: I64, row: int, lag: int, wanted: int) -> Path:
    """The first ``wanted`` tokens of the request ``lag`` before ``row``.

    Where that one is too short, of the nearest to it that is not; where none near is, all of the longest.
    """
    aim = min(max(row - lag, 0), row - 1)
    low, high = max(aim - NEAR, 0), min(aim + NEAR, row)
    if prompts[aim] > wanted:
        parent = aim
    else:
        fitting = np.flatnonzero(prompts[low:high] > wanted)
        near = fitting[np.abs(fitting + low - aim).argmin()] if len(fitting) else prompts[low:high].argmax()
        parent = low + int(near)
    start: Path = []
    left = wanted
    for content, tokens in paths[parent]:
        if left <= 0:
            break
        start.append((content, min(tokens, left)))
        left -= tokens
    return start
