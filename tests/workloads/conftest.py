"""Helpers of the workload tests: write a trace, open it, read all of it, and check what holds for every batch."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from workloads import RequestBatch, Workload, open_workload
from workloads.batch import concat

Write = Callable[..., Path]
Open = Callable[..., Workload]
Read = Callable[..., RequestBatch]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Writes text or bytes to a file of the test's own folder and returns its path."""

    def write_file(content: str | bytes, name: str = "trace.txt") -> Path:
        path = tmp_path / name
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return path

    return write_file


@pytest.fixture
def opened(tmp_path: Path) -> Open:
    """Opens a workload of the settings given, with paths relative to the test's own folder."""

    def open_it(seed: int = 0, **config: Any) -> Workload:
        return open_workload(config, tmp_path, seed)

    return open_it


@pytest.fixture
def read(opened: Open) -> Read:
    """Opens a workload and reads all of it into one batch, checking every batch on the way."""

    def read_all(seed: int = 0, rows: int = 1 << 14, **config: Any) -> RequestBatch:
        return drain(opened(seed, **config), rows)

    return read_all


def drain(workload: Workload, rows: int) -> RequestBatch:
    """All requests of a workload, read ``rows`` at a time."""
    parts = list(workload.batches(rows))
    for before, after in pairwise(parts):
        assert before.arrival_ns[-1] < after.arrival_ns[0], "a run of equal arrivals straddles two batches"
    for part in parts:
        check(part)
        longest_run = int(np.unique(part.arrival_ns, return_counts=True)[1].max())
        assert len(part) <= max(rows, longest_run)
    whole = concat(parts)
    described = workload.describe()
    assert described["complete"]
    assert described["requests"] == len(whole)
    assert described["prompt_tokens_total"] == whole.prompt_tokens.sum()
    assert described["output_tokens_total"] == whole.output_tokens.sum()
    return whole


def check(batch: RequestBatch) -> None:
    """The laws of a batch: sorted, covered by spans, ranked."""
    n = len(batch)
    assert n > 0
    assert (np.diff(batch.arrival_ns) >= 0).all()
    assert len(batch.sessions) == n
    assert len(batch.span_offsets) == n + 1
    assert batch.span_offsets[0] == 0
    assert batch.span_offsets[-1] == len(batch.span_content) == len(batch.span_tokens)
    assert (batch.span_tokens >= 1).all()
    for name in ("arrival_ns", "prompt_tokens", "output_tokens", "max_tokens", "priority", "prompt_spans", "tie_rank"):
        assert getattr(batch, name).dtype == np.int64
        assert getattr(batch, name).shape == (n,)
    assert batch.salt.dtype == batch.span_content.dtype == np.uint64
    assert batch.skip_cache.dtype == np.bool_
    assert (batch.max_tokens >= batch.output_tokens).all()
    sums = np.concatenate(([0], np.cumsum(batch.span_tokens)))
    middle = batch.span_offsets[:-1] + batch.prompt_spans
    assert np.array_equal(sums[middle] - sums[batch.span_offsets[:-1]], batch.prompt_tokens)
    assert np.array_equal(sums[batch.span_offsets[1:]] - sums[middle], batch.output_tokens)
    for i in range(n):
        tied = (
            [other for j, other in enumerate(batch.ids) if batch.arrival_ns[j] == batch.arrival_ns[i]]
            if n < 200
            else []
        )
        if tied:
            assert sorted(tied)[batch.tie_rank[i]] == batch.ids[i]
