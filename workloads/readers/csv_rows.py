"""CSV rows by column name."""

from __future__ import annotations

import csv
from collections.abc import Sequence

from workloads.errors import WorkloadError, unknown
from workloads.trace_file import RowBlock, TraceFile


def csv_header(trace: TraceFile, required: Sequence[str], optional: Sequence[str] = ()) -> list[str]:
    """The lower-cased column names of a file's first line; raises `WorkloadError` for a missing or unknown one."""
    number, line = trace.first_line
    where = f"{trace.label}:{number}"
    header = split_header(line)
    allowed = [*required, *optional]
    known = {name.lower() for name in allowed}
    for name in header:
        if name not in known:
            raise unknown("column", name, allowed, where)
        if header.count(name) > 1:
            raise WorkloadError(f"column {name!r} comes twice in the header", where=where)
    missing = [name for name in required if name.lower() not in header]
    if missing:
        raise WorkloadError(f"the header lacks {', '.join(missing)}; it needs {', '.join(required)}", where=where)
    return header


def split_header(line: str) -> list[str]:
    """Column names of a header line, lower-cased and trimmed.

    >>> split_header('TIMESTAMP, "ContextTokens"')
    ['timestamp', 'contexttokens']
    """
    try:
        names = next(csv.reader([line], skipinitialspace=True), [])
    except csv.Error:  # no header of anybody's
        return []
    return [name.strip().lower() for name in names]


def csv_columns(block: RowBlock, header: Sequence[str]) -> dict[str, Sequence[str]]:
    """The texts of each column of a block; raises `WorkloadError` for the first row that does not fit the header."""
    text = ",".join(block.lines)
    width = len(header)
    if '"' in text or {line.count(",") for line in block.lines} != {width - 1}:
        return quoted_columns(block, header)
    cells = text.split(",")
    return {name: cells[i::width] for i, name in enumerate(header)}


def quoted_columns(block: RowBlock, header: Sequence[str]) -> dict[str, Sequence[str]]:
    """What `csv_columns` does, by the rules for quotes, and exact about the row at fault."""
    rows: list[list[str]] = []
    try:
        # Rows read before an error stay in the list, so its length tells the bad line.
        rows.extend(csv.reader(block.lines, strict=True))
    except csv.Error as error:
        where = block.where(min(len(rows), len(block.lines) - 1))
        raise WorkloadError(f"not a CSV row: {error}", where=where) from None
    for i, row in enumerate(rows):
        if len(row) != len(header):
            raise WorkloadError(
                f"the row has {len(row)} columns, the header {len(header)} ({','.join(header)}); is the file cut here?",
                where=block.where(i),
            )
    if len(rows) != len(block.lines):
        raise WorkloadError(
            "a quoted value goes on over several lines; write one request per line", where=block.where(0)
        )
    return dict(zip(header, zip(*rows, strict=True), strict=True))
