"""Native Parquet: the columns of `RequestBatch` as they are, a row group at a time; written by ``trace convert``.

Columns at their default in the whole file are left out. ``span_content`` and ``span_tokens`` are lists, of which the
first ``prompt_spans`` make the prompt; without them prompts and outputs are private to their rows.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from workloads.batch import RequestBatch, from_spans, from_table
from workloads.columns import MAX_SECONDS, MAX_TOKENS
from workloads.content import I64, PRIVATE_OUTPUT, PRIVATE_PROMPT, named
from workloads.errors import WorkloadError
from workloads.options import ReadOptions
from workloads.parquet import ParquetFile, lists, numbers
from workloads.trace_file import TraceFile
from workloads.workload import Tally

REQUIRED = ("arrival_ns", "prompt_tokens", "output_tokens")
SPANS = ("prompt_spans", "span_content", "span_tokens")
OPTIONAL = {
    "max_tokens": "int64",
    "priority": "int64",
    "skip_cache": "bool",
    "salt": "uint64",
    "encoder_tokens": "int64",
    "turn": "int64",
    "think_ns": "int64",
}
TEXTS = ("id", "session")
COLUMNS = (*REQUIRED, *SPANS, *OPTIONAL, *TEXTS)
VERSION = {"hybridkv": "requests 1"}


def is_native(columns: list[str]) -> bool:
    """Whether a Parquet file has the columns of a native one."""
    return set(REQUIRED) <= set(columns)


def read(trace: TraceFile, tally: Tally, _: ReadOptions) -> Iterator[RequestBatch]:
    """The requests of a native Parquet file in file order; raises `WorkloadError` for values that no request has."""
    file = ParquetFile(trace.path, trace.label)
    names = [name for name in COLUMNS if name in file.columns]
    unknown = sorted(set(file.columns) - set(COLUMNS))
    if unknown:
        raise WorkloadError(f"unknown column {unknown[0]!r}; allowed: {', '.join(COLUMNS)}", where=trace.label)
    ordinal, before = 0, 0
    for group in file.batches(names):
        part = group if tally.left is None else group.slice(0, max(tally.left, 0))
        if not part.num_rows:
            return
        batch = parse(dict(zip(names, part.columns, strict=True)), ordinal, trace.label)
        check(batch, ordinal, before, trace.label)
        ordinal, before = ordinal + len(batch), int(batch.arrival_ns[-1])
        yield batch


def parse(columns: dict[str, Any], ordinal: int, label: str) -> RequestBatch:
    """One row group's requests, the first of which is number ``ordinal`` of the file."""
    for name, column in columns.items():
        if column.null_count and name not in TEXTS:
            raise WorkloadError(f"{name} has empty values; a native file has none", where=label)
    try:
        arrival, prompt, output = (numbers(columns[name], "int64") for name in REQUIRED)
        given: dict[str, Any] = {
            name: numbers(columns[name], kind) for name, kind in OPTIONAL.items() if name in columns
        }
        rows = np.arange(ordinal, ordinal + len(arrival), dtype=np.int64)
        ids = columns["id"].to_pylist() if "id" in columns else [str(i) for i in rows.tolist()]
        if "session" in columns:
            given["sessions"] = columns["session"].to_pylist()
        if "span_content" not in columns:
            content = np.stack([named(rows, PRIVATE_PROMPT), named(rows, PRIVATE_OUTPUT)], axis=1)
            return from_table(ids, arrival, content, np.stack([prompt, output], axis=1), **given)
        counts, contents = lists(columns["span_content"], "uint64")
        token_counts, tokens = lists(columns["span_tokens"], "int64")
        if not np.array_equal(counts, token_counts):
            raise ValueError("span_content and span_tokens differ in length")
        prompt_spans = numbers(columns["prompt_spans"], "int64")
        return from_spans(ids, arrival, prompt, output, prompt_spans, counts, contents, tokens, **given)
    except (KeyError, ValueError, TypeError, AttributeError) as error:
        raise WorkloadError(f"not the columns of a native file: {error}", where=label) from None


def check(batch: RequestBatch, ordinal: int, before_ns: int, label: str) -> None:
    """Raise for the first request that breaks a law of batches."""
    arrival: I64 = np.concatenate(([before_ns], batch.arrival_ns))
    longest = batch.max_tokens if batch.max_tokens is not batch.output_tokens else batch.output_tokens
    sums = np.concatenate(([0], np.cumsum(batch.span_tokens)))
    starts, stops = batch.span_offsets[:-1], batch.span_offsets[1:]
    middle = np.clip(starts + batch.prompt_spans, starts, stops)
    laws = {
        "arrival_ns goes backwards, or beyond 10^9 s": (np.diff(arrival) < 0)
        | (batch.arrival_ns > MAX_SECONDS * 10**9),
        "prompt_tokens or output_tokens is not from 1 to 10^9": (
            (np.minimum(batch.prompt_tokens, batch.output_tokens) < 1)
            | (np.maximum(batch.prompt_tokens, batch.output_tokens) > MAX_TOKENS)
        ),
        "max_tokens is below output_tokens": longest < batch.output_tokens,
        "the spans do not add up to prompt_tokens and output_tokens": (
            (sums[middle] - sums[starts] != batch.prompt_tokens) | (sums[stops] - sums[middle] != batch.output_tokens)
        ),
    }
    for problem, broken in laws.items():
        if broken.any():
            raise WorkloadError(problem, where=f"{label}: row {ordinal + int(np.flatnonzero(broken)[0]) + 1}")
