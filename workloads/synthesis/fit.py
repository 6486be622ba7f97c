"""From a trace to the numbers of a generator: quantiles of lengths, of what is shared, and of how long ago."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from workloads.batch import RequestBatch
from workloads.content import I64
from workloads.generate.draws import F64
from workloads.stats.prefixes import hit_tokens
from workloads.stats.reuse import block_names, block_size_for, previous_use
from workloads.synthesis.load import Load, fit_load

GRID = 129
BINS = 8
BLOCK = 16


@dataclass(frozen=True, slots=True)
class Fit:
    """The numbers a trace is reduced to: quantiles at evenly spaced ranks, unless said otherwise.

    ``correlation`` is that of the ranks of prompt and output. ``edges`` cut prompt lengths into bins; ``sharing`` is
    the share of a bin's requests that share a prefix, ``parts`` the quantiles of how much of their prompt they share.
    ``lag_edges`` cut shared tokens into bins, ``lags`` counts requests since such a prefix was last used.
    """

    requests: int
    load: Load
    prompt_tokens: list[float]
    output_tokens: list[float]
    correlation: float
    edges: list[float]
    sharing: list[float]
    parts: list[list[float]]
    lag_edges: list[float]
    lags: list[list[float]]

    def to_json(self) -> dict[str, Any]:
        """The fit as plain values."""
        return asdict(self)


def fit(batch: RequestBatch) -> Fit:
    """Reduce a trace to its fit."""
    prompts, outputs = batch.prompt_tokens, batch.output_tokens
    hits = hit_tokens(batch)
    edges, bins = binned(prompts)
    share = hits / prompts
    sharer, lags = lags_of(batch, hits)
    lag_edges, lag_bins = binned(hits[sharer])
    return Fit(
        len(batch),
        fit_load(batch.arrival_ns),
        quantiles(prompts.astype(np.float64)),
        quantiles(outputs.astype(np.float64)),
        rank_correlation(prompts, outputs),
        edges,
        [float((hits[bins == b] > 0).mean()) if (bins == b).any() else 0.0 for b in range(BINS)],
        [quantiles(share[(bins == b) & (hits > 0)]) for b in range(BINS)],
        lag_edges,
        [quantiles(lags[lag_bins == b].astype(np.float64)) for b in range(BINS)],
    )


def binned(values: I64) -> tuple[list[float], I64]:
    """Edges between `BINS` bins with about as many values each, and the bin of each value."""
    if not len(values):
        return [], np.zeros(0, dtype=np.int64)
    edges = np.quantile(values, np.linspace(0, 1, BINS + 1)[1:-1])
    return edges.tolist(), np.searchsorted(edges, values, side="right").astype(np.int64)


def quantiles(values: F64) -> list[float]:
    """Quantiles at `GRID` ranks; of nothing, nothing."""
    return [float(value) for value in np.quantile(values, np.linspace(0, 1, GRID))] if len(values) else []


def rank_correlation(one: I64, other: I64) -> float:
    """Spearman's: of the ranks, ties in order of appearance; 0 where one of them never changes.

    >>> rank_correlation(np.array([1, 5, 9, 11]), np.array([2, 3, 8, 9]))
    1.0
    """
    if len(one) < 3 or one.min() == one.max() or other.min() == other.max():
        return 0.0
    ranks = [np.argsort(np.argsort(values, kind="stable")).astype(np.float64) for values in (one, other)]
    return round(float(np.corrcoef(ranks[0], ranks[1])[0, 1]), 12)


def lags_of(batch: RequestBatch, hits: I64) -> tuple[I64, I64]:
    """The requests that share whole blocks, and for each how many requests ago the last of them was last used."""
    size = block_size_for(int(batch.prompt_tokens.sum()), BLOCK)
    owner, names = block_names(batch, size)
    previous = previous_use(names)
    counts = np.bincount(owner, minlength=len(batch))
    first = np.concatenate(([0], np.cumsum(counts)))[:-1]
    shared = np.minimum(hits // size, counts)
    rows = np.flatnonzero(shared > 0)
    before = previous[first[rows] + shared[rows] - 1]
    rows, before = rows[before >= 0], before[before >= 0]
    return rows, np.asarray(rows - owner[before], dtype=np.int64)
