"""Columns to Parquet: units in the names, vLLM's Prometheus metric name in the metadata of each column that has one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from sim.pool_shares import meaning

VLLM_METRICS = {
    "requests": {
        "prompt_tokens": "vllm:request_prompt_tokens",
        "output_tokens": "vllm:request_generation_tokens",
        "cached_tokens": "vllm:prompt_tokens_cached",
        "preemptions": "vllm:request_num_preemptions",
        "queue_s": "vllm:request_queue_time_seconds",
        "ttft_s": "vllm:time_to_first_token_seconds",
        "tpot_s": "vllm:request_time_per_output_token_seconds",
        "e2e_s": "vllm:e2e_request_latency_seconds",
        "finish_reason": "vllm:request_success",
    },
    "steps": {
        "scheduled_tokens": "vllm:iteration_tokens_total",
        "running_requests": "vllm:num_requests_running",
        "waiting_requests": "vllm:num_requests_waiting",
        "preempted_requests": "vllm:num_preemptions",
        "hit_tokens": "vllm:prefix_cache_hits",
    },
}
"""Per table: our column, and the metric vLLM exports of the same quantity (vllm 0.33.0 v1/metrics/loggers.py:528-1021).

Where vLLM's metric is a counter, the column holds the share of each request or step.
"""


def write_parquet(path: Path, table: str, columns: Mapping[str, Sequence[Any] | NDArray[Any]]) -> None:
    """Write ``columns`` (of one length) as a ``table`` of a run or a sweep; NaN and None become null."""
    arrays = {name: _array(values) for name, values in columns.items()}
    fields = [pa.field(name, array.type, metadata=_metadata(table, name)) for name, array in arrays.items()]
    pq.write_table(pa.Table.from_arrays(list(arrays.values()), schema=pa.schema(fields)), path, compression="zstd")


def _metadata(table: str, name: str) -> dict[str, str] | None:
    """vLLM's metric of the same quantity; what a share of the pool counts."""
    if metric := VLLM_METRICS.get(table, {}).get(name):
        return {"vllm_metric": metric}
    counts = meaning(name)
    return {"counts": counts} if counts else None


def _array(values: Sequence[Any] | NDArray[Any]) -> pa.Array:
    """An Arrow array over the values' own memory. ``pyarrow.array`` would import pandas to look at them."""
    column = np.asarray(values)
    if column.dtype.kind in "OU":
        return _text([None if value is None else str(value) for value in values])
    column = np.ascontiguousarray(column)
    if column.dtype == np.bool_:
        column = column.astype(np.uint8)
    null = np.isnan(column) if column.dtype.kind == "f" else np.zeros(len(column), np.bool_)
    buffers = [_validity(~null), pa.py_buffer(column)]
    return pa.Array.from_buffers(pa.from_numpy_dtype(column.dtype), len(column), buffers)


def _text(values: list[str | None]) -> pa.Array:
    raw = [b"" if value is None else value.encode() for value in values]
    offsets = np.zeros(len(raw) + 1, np.int64)
    np.cumsum([len(text) for text in raw], out=offsets[1:])
    present = np.array([value is not None for value in values], np.bool_)
    buffers = [_validity(present), pa.py_buffer(offsets), pa.py_buffer(b"".join(raw))]
    return pa.Array.from_buffers(pa.large_string(), len(raw), buffers)


def _validity(present: NDArray[np.bool_]) -> pa.Buffer | None:
    return None if present.all() else pa.py_buffer(np.packbits(present, bitorder="little"))
