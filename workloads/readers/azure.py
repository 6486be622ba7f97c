"""The Azure LLM inference traces of 2023 and 2024: ``TIMESTAMP,ContextTokens,GeneratedTokens``.

Lines may end in CR LF, timestamps carry up to nine fractional digits (2023: seven) and, in 2024, a UTC offset on some
rows. Arrivals count from the first row. The traces name no content: prompts and outputs are private.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from workloads.batch import RequestBatch, from_table
from workloads.clock import STAMP, STAMPS_ALLOWED
from workloads.columns import Order, bad_value, token_column
from workloads.content import I64, PRIVATE_OUTPUT, PRIVATE_PROMPT, named
from workloads.options import ReadOptions
from workloads.readers.csv_rows import csv_columns, csv_header
from workloads.trace_file import RowBlock, TraceFile
from workloads.workload import Tally

COLUMNS = ("TIMESTAMP", "ContextTokens", "GeneratedTokens")


def read(trace: TraceFile, tally: Tally, _: ReadOptions) -> Iterator[RequestBatch]:
    """The requests of an Azure trace in file order; rows with a zero length are counted in ``tally`` and left out."""
    header = csv_header(trace, COLUMNS)
    order = Order("TIMESTAMP")
    start: int | None = None
    ordinal = 0
    for block in trace.rows(tally, header=True):
        columns = csv_columns(block, header)
        stamps = timestamps(columns["timestamp"], block)
        start = int(stamps[0]) if start is None else start
        order.check(stamps - start, block)
        prompt = token_column(columns["contexttokens"], "ContextTokens", block, low=0)
        output = token_column(columns["generatedtokens"], "GeneratedTokens", block, low=0)
        rows = np.arange(ordinal, ordinal + len(stamps), dtype=np.int64)
        ordinal += len(stamps)
        kept = tally.keep(prompt, output)
        content = np.stack([named(rows, PRIVATE_PROMPT), named(rows, PRIVATE_OUTPUT)], axis=1)
        tokens = np.stack([prompt, output], axis=1)
        ids = [str(i) for i in rows[kept].tolist()]
        yield from_table(ids, (stamps - start)[kept], content[kept], tokens[kept])


def timestamps(texts: Sequence[str], block: RowBlock) -> I64:
    """Nanoseconds since 1970 of a block of timestamps; one without an offset counts as UTC."""
    matches = list(map(STAMP.fullmatch, texts))
    if None in matches:
        bad = matches.index(None)
        raise bad_value(block, bad, "TIMESTAMP", texts[bad], STAMPS_ALLOWED)
    found = [match.groups() for match in matches if match]
    try:
        stamps = np.array([groups[0] for groups in found], dtype="datetime64[ns]").astype(np.int64)
    except ValueError:
        bad = next(i for i, groups in enumerate(found) if not exists(groups[0]))
        raise bad_value(block, bad, "TIMESTAMP", texts[bad], "a date and time that exist") from None
    if any(groups[1] for groups in found):
        minutes = [int(f"{sign}{hours}") * 60 + int(f"{sign}{mins}") if sign else 0 for _, sign, hours, mins in found]
        stamps -= np.array(minutes, dtype=np.int64) * 60_000_000_000
    return stamps


def exists(stamp: str | None) -> bool:
    """Whether a well-formed time stamp names a real date and time."""
    try:
        np.datetime64(stamp, "ns")
    except ValueError:
        return False
    return True
