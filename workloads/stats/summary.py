"""The statistics of a trace in one mapping, ready for JSON."""

from __future__ import annotations

from typing import Any

import numpy as np

from workloads.batch import RequestBatch
from workloads.content import I64
from workloads.stats.prefixes import hit_tokens, whole_blocks
from workloads.stats.reuse import block_names, block_size_for, curve, previous_use, reuse_distances, working_sets

PERCENTILES = (1, 10, 50, 90, 95, 99)
WINDOWS_S = (60, 600, 3600)
DEPTHS = (1024, 4096, 16384, 65536, 1 << 62)


def describe(batch: RequestBatch, block_size: int) -> dict[str, Any]:
    """Lengths, arrivals, sessions, prefix sharing, working sets and reuse of a whole trace of at least one request."""
    sharing = prefix_sharing(batch, block_size)
    return {
        "requests": len(batch),
        "prompt_tokens": distribution(batch.prompt_tokens),
        "output_tokens": distribution(batch.output_tokens),
        "arrivals": arrivals(batch.arrival_ns),
        "sessions": sessions(batch),
        "prefix_sharing": sharing,
        "reuse": reuse(batch, block_size),
    }


def distribution(values: I64) -> dict[str, Any]:
    """Total, mean, percentiles and extremes."""
    found = np.percentile(values, PERCENTILES)
    return {
        "total": int(values.sum()),
        "mean": float(values.mean()),
        "min": int(values.min()),
        **{f"p{rank}": float(value) for rank, value in zip(PERCENTILES, found, strict=True)},
        "max": int(values.max()),
    }


def arrivals(arrival_ns: I64) -> dict[str, Any]:
    """Rate, spread of the gaps, and burstiness.

    ``gap_cv`` is 1 for Poisson arrivals. ``dispersion_<w>s`` is the variance of the number of arrivals in windows of w
    seconds over its mean: 1 for Poisson at every w, and it grows with w where bursts come in bursts.
    """
    span_s = float(arrival_ns[-1] - arrival_ns[0]) / 1e9
    gaps = np.diff(arrival_ns) / 1e9
    mean = float(gaps.mean()) if len(gaps) else 0.0
    return {
        "span_s": span_s,
        "rate_per_s": (len(arrival_ns) - 1) / span_s if span_s else None,
        "gap_cv": float(gaps.std()) / mean if mean else None,
        "same_time_as_before": int((gaps == 0).sum()),
        "longest_gap_s": float(gaps.max()) if len(gaps) else 0.0,
        **{f"dispersion_{window}s": dispersion(arrival_ns, window) for window in (1, 10, 60)},
        **{f"most_in_{window}s": int(counted(arrival_ns, window).max()) for window in (1, 60)},
    }


def counted(arrival_ns: I64, window_s: int) -> I64:
    """Arrivals in each window of the trace, or in each that has any where there are more than 10^7."""
    slots = (arrival_ns - arrival_ns[0]) // (window_s * 10**9)
    if int(slots[-1]) > 10**7:
        return np.unique(slots, return_counts=True)[1].astype(np.int64)
    return np.bincount(slots).astype(np.int64)


def dispersion(arrival_ns: I64, window_s: int) -> float | None:
    """Variance over mean of the arrivals in whole windows; None with fewer than two of them."""
    counts = counted(arrival_ns, window_s)[:-1]
    return float(counts.var() / counts.mean()) if len(counts) > 1 and counts.any() else None


def sessions(batch: RequestBatch) -> dict[str, Any]:
    """How many sessions there are, how long they are, and how many requests wait for an answer."""
    named = [session for session in batch.sessions if session is not None]
    counts = np.unique(np.array(named), return_counts=True)[1] if named else np.zeros(0, dtype=np.int64)
    waiting = batch.think_ns >= 0
    return {
        "sessions": len(counts),
        "requests_per_session": distribution(counts.astype(np.int64)) if len(counts) else None,
        "waiting_for_answers": int(waiting.sum()),
        "think_s_mean": float(batch.think_ns[waiting].mean() / 1e9) if waiting.any() else None,
    }


def prefix_sharing(batch: RequestBatch, block_size: int) -> dict[str, Any]:
    """Shares of the prompt tokens that a cache which keeps everything hits, in all and by depth in the prompt."""
    prompts = batch.prompt_tokens
    hits = hit_tokens(batch)
    with_answers = hit_tokens(batch, answers=True)
    total = int(prompts.sum())
    blocks = whole_blocks(hits, prompts, block_size)
    return {
        "block_size": block_size,
        "share": int(hits.sum()) / total,
        "share_in_whole_blocks": int(blocks.sum()) / total,
        "share_with_answers": int(whole_blocks(with_answers, prompts, block_size).sum()) / total,
        "mean_share_per_request": float((hits / prompts).mean()),
        "requests_without_any": float((blocks == 0).mean()),
        "by_depth": by_depth(hits, prompts),
    }


def by_depth(hits: I64, prompts: I64) -> list[dict[str, Any]]:
    """Prompt tokens between two depths, and the share of them that hits."""
    rows = []
    low = 0
    for high in DEPTHS:
        tokens = int(np.clip(prompts - low, 0, high - low).sum())
        hit = int(np.clip(hits - low, 0, high - low).sum())
        if tokens:
            rows.append({"from": low, "to": min(high, int(prompts.max())), "tokens": tokens, "share": hit / tokens})
        low = high
    return rows


def reuse(batch: RequestBatch, block_size: int) -> dict[str, Any]:
    """Distinct tokens, working sets, and the share of block accesses that LRU caches of doubling size hit."""
    size = block_size_for(int(batch.prompt_tokens.sum()), block_size)
    owner, names = block_names(batch, size)
    if not len(names):
        return {"block_size": size, "distinct_tokens": 0, "working_set_tokens": {}, "lru": []}
    previous = previous_use(names)
    points = curve(reuse_distances(previous), len(names), size)
    return {
        "block_size": size,
        "distinct_tokens": int((previous < 0).sum()) * size,
        "working_set_tokens": working_sets(owner, names, batch.arrival_ns, size, WINDOWS_S),
        "lru": [{"cache_tokens": tokens, "share": share} for tokens, share in points],
    }
