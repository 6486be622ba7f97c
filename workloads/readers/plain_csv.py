"""Plain CSV: ``arrival_s,prompt_tokens,output_tokens`` and, optionally, ``prefix_id,prefix_tokens``.

Columns go by name, in any order. A prefix is the first ``prefix_tokens`` tokens of the text ``prefix_id``; the rest of
the prompt is private to the request, and so is its output.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from workloads.batch import RequestBatch, from_table
from workloads.columns import Order, bad_value, second_column, token_column
from workloads.content import PRIVATE_OUTPUT, PRIVATE_PROMPT, U64, content_id, named
from workloads.errors import WorkloadError
from workloads.options import ReadOptions
from workloads.readers.csv_rows import csv_columns, csv_header
from workloads.trace_file import RowBlock, TraceFile
from workloads.workload import Tally

REQUIRED = ("arrival_s", "prompt_tokens", "output_tokens")
PREFIX = ("prefix_id", "prefix_tokens")
MAX_NAME = 1024


def read(trace: TraceFile, tally: Tally, _: ReadOptions) -> Iterator[RequestBatch]:
    """The requests of a plain CSV in file order; ids are row numbers from 0."""
    header = csv_header(trace, REQUIRED, PREFIX)
    if len(set(PREFIX) & set(header)) == 1:
        raise WorkloadError(
            "prefix_id and prefix_tokens go together; the header has one of them",
            where=f"{trace.label}:{trace.first_line[0]}",
        )
    order = Order("arrival_s")
    ordinal = 0
    for block in trace.rows(tally, header=True):
        batch = parse(csv_columns(block, header), block, ordinal)
        order.check(batch.arrival_ns, block)
        ordinal += len(batch)
        yield batch


def parse(columns: dict[str, Sequence[str]], block: RowBlock, ordinal: int) -> RequestBatch:
    """The requests of one block whose first row is number ``ordinal``."""
    arrival = second_column(columns["arrival_s"], "arrival_s", block)
    prompt = token_column(columns["prompt_tokens"], "prompt_tokens", block)
    output = token_column(columns["output_tokens"], "output_tokens", block)
    rows = np.arange(ordinal, ordinal + len(arrival), dtype=np.int64)
    own = [named(rows, PRIVATE_PROMPT), named(rows, PRIVATE_OUTPUT)]
    if "prefix_id" not in columns:
        content, tokens = np.stack(own, axis=1), np.stack([prompt, output], axis=1)
    else:
        texts = ["0" if text == "" else text for text in columns["prefix_tokens"]]
        prefix = token_column(texts, "prefix_tokens", block, low=0)
        too_long = np.flatnonzero(prefix > prompt)
        if len(too_long):
            i = int(too_long[0])
            raise bad_value(
                block, i, "prefix_tokens", int(prefix[i]), f"0 to the prompt_tokens of the row, {prompt[i]}"
            )
        content = np.stack([prefix_contents(columns["prefix_id"], prefix.tolist(), block), *own], axis=1)
        tokens = np.stack([prefix, prompt - prefix, output], axis=1)
    return from_table([str(i) for i in rows.tolist()], arrival, content, tokens)


def prefix_contents(names: Sequence[str], tokens: list[int], block: RowBlock) -> U64:
    """Content of each row's prefix name; a row without prefix tokens needs none."""
    for i, (name, count) in enumerate(zip(names, tokens, strict=True)):
        if (count and not name) or len(name) > MAX_NAME:
            raise bad_value(block, i, "prefix_id", name, f"1 to {MAX_NAME} characters where prefix_tokens is above 0")
    return np.array([content_id(name) for name in names], dtype=np.uint64)
