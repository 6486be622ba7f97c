"""JSON Lines: one object per line, strictly."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from workloads.errors import WorkloadError, show, unknown
from workloads.readers.fields import Fields
from workloads.trace_file import DECODER, RowBlock, TraceFile
from workloads.workload import Tally


def objects(block: RowBlock) -> list[dict[str, Any]]:
    """The JSON object of each line; raises `WorkloadError` for the first line that is none."""
    rows: list[dict[str, Any]] = []
    try:
        # Rows decoded before an error stay in the list, so its length tells the bad line.
        rows.extend(map(DECODER.decode, block.lines))
    except (ValueError, RecursionError) as error:
        if isinstance(error, RecursionError):
            reason = "nested too deeply"
        elif isinstance(error, json.JSONDecodeError):
            reason = f"{error.msg} at column {error.colno}"
        else:
            reason = str(error).partition(";")[0]
        raise WorkloadError(
            f"not valid JSON: {reason}; each line holds one whole JSON object (is the file cut here?)",
            where=block.where(len(rows)),
        ) from None
    if set(map(type, rows)) != {dict}:
        bad = next(i for i, row in enumerate(rows) if type(row) is not dict)
        raise WorkloadError(f"expected a JSON object, got {show(rows[bad])}", where=block.where(bad))
    return rows


def located(trace: TraceFile, tally: Tally) -> Iterator[Fields]:
    """The objects of a JSON Lines file one at a time, each with its place."""
    for block in trace.rows(tally):
        for i, row in enumerate(objects(block)):
            yield Fields(row, block.where(i))


def check_keys(rows: list[dict[str, Any]], required: frozenset[str], allowed: tuple[str, ...], block: RowBlock) -> None:
    """Raise for the first row with a key that is not ``allowed`` or without a ``required`` one."""
    known = frozenset(allowed)
    for i, row in enumerate(rows):
        if row.keys() <= known and row.keys() >= required:
            continue
        for key in row:
            if key not in known:
                raise unknown("key", key, allowed, block.where(i))
        missing = ", ".join(sorted(required - row.keys()))
        raise WorkloadError(f"missing {missing}; each row needs {', '.join(sorted(required))}", where=block.where(i))
