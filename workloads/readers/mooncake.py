"""Mooncake JSON Lines: ``timestamp`` (ms), ``input_length``, ``output_length``, ``hash_ids``.

``hash_ids`` are chained prefix ids of 512-token blocks, the last partial block included, so one id is one span::

    input_length 1300   |-- id 46, 512 --|-- id 47, 512 --|-- id 2354, 276 --|

The block size is not in the file. The size 16 (Qwen-Bailian, whose rows carry ``chat_id`` and seconds) and a size named
in the rows as ``block_size`` are read as well; every row must have ``ceil(input_length / block size)`` ids.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from typing import Any

import numpy as np

from workloads.batch import RequestBatch, from_spans, offsets
from workloads.columns import MAX_TOKENS, REAL, WHOLE, Order, bad_value, second_column, token_column, typed
from workloads.content import I64, MASK, MOONCAKE, PRIVATE_OUTPUT, U64, named
from workloads.errors import WorkloadError
from workloads.readers.json_rows import check_keys, objects
from workloads.trace_file import RowBlock, TraceFile
from workloads.workload import Tally

REQUIRED = frozenset({"timestamp", "input_length", "output_length", "hash_ids"})
BAILIAN = ("chat_id", "parent_chat_id", "type", "turn")
ALLOWED = ("timestamp", "input_length", "output_length", "hash_ids", "block_size", "session_id", *BAILIAN)
BLOCK_SIZES = (512, 16)
# A relative time of 10^9 ms is 11 days; an epoch time in s, ms or us is larger than either.
EPOCH = 10**9


def read(trace: TraceFile, tally: Tally) -> Iterator[RequestBatch]:
    """The requests of a Mooncake trace in file order; rows with a zero length are counted in ``tally`` and left out."""
    order = Order("timestamp")
    sizes: tuple[int, ...] = BLOCK_SIZES
    bailian = False
    ordinal = 0
    for block in trace.rows(tally):
        rows = objects(block)
        check_keys(rows, REQUIRED, ALLOWED, block)
        if ordinal == 0:
            bailian = "chat_id" in rows[0]
            refuse_epoch(rows[0]["timestamp"], block)
        arrival = arrivals(rows, bailian, block)
        order.check(arrival, block)
        sizes = block_sizes(rows, sizes, block)
        tally.notes.update(dialect="bailian" if bailian else "mooncake", trace_block_size=sizes[0])
        yield build(rows, arrival, sizes[0], ordinal, block, tally)
        ordinal += len(rows)


def refuse_epoch(first: Any, block: RowBlock) -> None:
    """Raise when the first time stamp is a date rather than a time from the start of the trace."""
    if type(first) in REAL and first >= EPOCH:
        raise bad_value(
            block, 0, "timestamp", first, "a time from the start of the trace, not a date; subtract the first one"
        )


def arrivals(rows: list[dict[str, Any]], in_seconds: bool, block: RowBlock) -> I64:
    """Arrival times in ns of a block of rows."""
    values = [row["timestamp"] for row in rows]
    unit = "seconds" if in_seconds else "milliseconds"
    typed(values, REAL, "timestamp", block, f"{unit} from the start of the trace")
    if in_seconds:
        return second_column(values, "timestamp", block)
    # Milliseconds have at most six places to the nanosecond, so the decimal text stays exact as seconds.
    whole = set(map(type, values)) == {int}
    if whole and min(values) >= 0 and max(values) <= MAX_TOKENS * 1000:
        return np.array(values, dtype=np.int64) * 1_000_000
    return second_column([value / 1000 for value in values], "timestamp (ms / 1000)", block)


def block_sizes(rows: list[dict[str, Any]], sizes: tuple[int, ...], block: RowBlock) -> tuple[int, ...]:
    """Those of ``sizes`` that fit every row. Rows that fit two sizes have one id, hence the same span under both."""
    lengths = token_column(column(rows, "input_length", block), "input_length", block, low=0)
    ids = [row["hash_ids"] for row in rows]
    typed(ids, frozenset({list}), "hash_ids", block, "a list of whole numbers")
    counts = np.array(list(map(len, ids)), dtype=np.int64)
    if any("block_size" in row for row in rows):
        sizes = (given_size(rows, block),)
    first_misfits = [int(np.argmax(counts != -(-lengths // size))) for size in sizes]
    fitting = tuple(size for size in sizes if bool((counts == -(-lengths // size)).all()))
    if fitting:
        return fitting
    i = max(first_misfits)
    tried = " or ".join(f"{size}-token blocks ({-(-int(lengths[i]) // size)} ids)" for size in sizes)
    raise WorkloadError(
        f"{counts[i]} hash_ids do not cover input_length {lengths[i]} in {tried}; each block has one id, the last "
        "partial one too: for another size add block_size to the rows",
        where=block.where(i),
    )


def given_size(rows: list[dict[str, Any]], block: RowBlock) -> int:
    """The one ``block_size`` that all rows of the block name."""
    first = rows[0].get("block_size")
    for i, row in enumerate(rows):
        size = row.get("block_size")
        if type(size) is not int or not 1 <= size <= MAX_TOKENS or size != first:
            raise bad_value(block, i, "block_size", size, "one whole number above 0, the same in all rows")
    return int(rows[0]["block_size"])


def build(
    rows: list[dict[str, Any]], arrival: I64, size: int, ordinal: int, block: RowBlock, tally: Tally
) -> RequestBatch:
    """The requests of one block of rows whose first is number ``ordinal``; zero lengths are left out."""
    prompt = np.array([row["input_length"] for row in rows], dtype=np.int64)
    output = token_column(column(rows, "output_length", block), "output_length", block, low=0)
    kept = tally.keep(prompt, output)
    numbers = (np.arange(ordinal, ordinal + len(rows), dtype=np.int64))[kept]
    prompt, output = prompt[kept], output[kept]
    ids = hash_ids(rows, kept.tolist(), block)
    counts = -(-prompt // size)
    ends = offsets(counts + 1)[1:] - 1
    content = np.empty(len(ids) + len(kept), dtype=np.uint64)
    tokens = np.full(len(content), size, dtype=np.int64)
    in_prompt = np.ones(len(content), dtype=np.bool_)
    in_prompt[ends] = False
    content[in_prompt] = named(ids, MOONCAKE)
    content[ends] = named(numbers, PRIVATE_OUTPUT)
    tokens[ends] = output
    tokens[ends - 1] = prompt - size * (counts - 1)
    return from_spans(
        [str(i) for i in numbers.tolist()],
        arrival[kept],
        prompt,
        output,
        prompt_spans=counts,
        span_counts=counts + 1,
        span_content=content,
        span_tokens=tokens,
        sessions=[session(rows[i].get("session_id"), block, i) for i in kept.tolist()],
    )


def hash_ids(rows: list[dict[str, Any]], kept: list[int], block: RowBlock) -> U64:
    """All ids of the kept rows, end to end, as 64-bit words."""
    flat = list(chain.from_iterable(rows[i]["hash_ids"] for i in kept))
    if not set(map(type, flat)) <= WHOLE or (flat and not (min(flat) >= -(1 << 63) and max(flat) <= MASK)):
        for i in kept:
            for value in rows[i]["hash_ids"]:
                if type(value) is not int or not -(1 << 63) <= value <= MASK:
                    raise bad_value(block, i, "hash_ids", value, "a list of whole numbers of 64 bits")
    if flat and max(flat) > MASK >> 1:
        flat = [value & MASK for value in flat]
        return np.array(flat, dtype=np.uint64)
    return np.array(flat, dtype=np.int64).astype(np.uint64)


def column(rows: list[dict[str, Any]], name: str, block: RowBlock) -> list[Any]:
    """The whole numbers of one key."""
    values = [row[name] for row in rows]
    typed(values, WHOLE, name, block, "whole numbers")
    return values


def session(value: Any, block: RowBlock, index: int) -> str | None:
    """A session name as a string; raises `WorkloadError` for another type."""
    if value is not None and type(value) not in (str, int):
        raise bad_value(block, index, "session_id", value, "a string")
    return None if value is None else str(value)
