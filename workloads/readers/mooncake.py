"""Mooncake JSON Lines: ``timestamp`` (ms), ``input_length``, ``output_length``, ``hash_ids``.

``hash_ids`` are chained prefix ids of 512-token blocks, the last partial block included, so one id is one span::

    input_length 1300   |-- id 46, 512 --|-- id 47, 512 --|-- id 2354, 276 --|

The block size is not in the file. The size 16 (Qwen-Bailian, whose rows carry ``chat_id`` and seconds) and a size named
in the rows as ``block_size``, or in the settings, are read as well; every row must have ``ceil(input_length / block
size)`` ids. Dates since 1970, as some converters write, are counted from the first one.

A Bailian chat is a session: its turns name their parent, and a parent that the excerpt lacks begins one.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np

from workloads.batch import RequestBatch, from_spans, offsets
from workloads.clock import epoch_ns, epoch_unit, exact_ns, mixed_units
from workloads.columns import MAX_TOKENS, REAL, WHOLE, Order, bad_value, second_column, token_column, typed
from workloads.content import I64, MASK, MOONCAKE, PRIVATE_OUTPUT, U64, named
from workloads.errors import WorkloadError
from workloads.options import ReadOptions
from workloads.readers.json_rows import check_keys, objects
from workloads.trace_file import RowBlock, TraceFile
from workloads.workload import Tally

REQUIRED = frozenset({"timestamp", "input_length", "output_length", "hash_ids"})
BAILIAN = ("chat_id", "parent_chat_id", "type", "turn")
OPTIONAL = ("block_size", "session_id", "request_id", "model", *BAILIAN)
ALLOWED = ("timestamp", "input_length", "output_length", "hash_ids", *OPTIONAL)
BLOCK_SIZES = (512, 16)


def read(trace: TraceFile, tally: Tally, options: ReadOptions) -> Iterator[RequestBatch]:
    """The requests of a Mooncake trace in file order; rows with a zero length are counted in ``tally`` and left out."""
    order = Order("timestamp")
    sizes: tuple[int, ...] = BLOCK_SIZES if options.block_size is None else (options.block_size,)
    clock: Clock | None = None
    chats: dict[Any, str] = {}
    ordinal = 0
    for block in trace.rows(tally):
        rows = objects(block)
        check_keys(rows, REQUIRED, ALLOWED, block)
        if clock is None:
            clock = Clock.of(rows[0], options, block)
            tally.notes.update(dialect="bailian" if "chat_id" in rows[0] else "mooncake", clock=clock.words)
        arrival = clock.arrivals(rows, block)
        order.check(arrival, block)
        sizes = block_sizes(rows, sizes, block)
        tally.notes["trace_block_size"] = sizes[0]
        yield build(rows, arrival, sizes[0], ordinal, block, tally, chats)
        ordinal += len(rows)


@dataclass(frozen=True, slots=True)
class Clock:
    """What ``timestamp`` counts: ``unit`` "seconds" or "milliseconds" from the start, or dates of ``epoch_ns`` each."""

    unit: str
    epoch_ns: int = 0
    start_ns: int = 0

    @classmethod
    def of(cls, row: dict[str, Any], options: ReadOptions, block: RowBlock) -> Clock:
        """The clock of a trace whose first row is ``row``."""
        first = row["timestamp"]
        typed([first], REAL, "timestamp", block, "a number")
        epoch = epoch_unit(first)
        if epoch is not None:
            return cls(epoch[1], epoch[0], exact_ns(first, epoch[0]))
        if first >= 10**9:
            raise bad_value(block, 0, "timestamp", first, "a time from the start of the trace, or a date since 1970")
        unit = options.time_unit or ("s" if "chat_id" in row else "ms")
        if unit not in ("s", "ms"):
            raise WorkloadError(f"{unit!r} given; allowed for this format: s, ms", where="workload.time_unit")
        return cls("seconds" if unit == "s" else "milliseconds")

    @property
    def words(self) -> str:
        """The clock in words."""
        return f"dates in {self.unit}, from the first one" if self.epoch_ns else self.unit

    def arrivals(self, rows: list[dict[str, Any]], block: RowBlock) -> I64:
        """Arrival times in ns of a block of rows."""
        values = [row["timestamp"] for row in rows]
        typed(values, REAL, "timestamp", block, f"{self.unit} from the start of the trace")
        if self.epoch_ns:
            dates = epoch_ns(values, self.epoch_ns)
            if dates is None:
                bad = next(i for i, value in enumerate(values) if epoch_unit(value) != (self.epoch_ns, self.unit))
                raise mixed_units("timestamp", values[bad], self.unit, block.where(bad))
            return dates - self.start_ns
        if self.unit == "seconds":
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
    rows: list[dict[str, Any]],
    arrival: I64,
    size: int,
    ordinal: int,
    block: RowBlock,
    tally: Tally,
    chats: dict[Any, str],
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
        sessions=[session(rows[i], chats, block, i) for i in kept.tolist()],
        turn=(token_column([row.get("turn", 1) for row in rows], "turn", block) - 1)[kept],
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


def session(row: dict[str, Any], chats: dict[Any, str], block: RowBlock, index: int) -> str | None:
    """The session of a row: as named, or the first chat of its line of parents; ``chats`` remembers those met."""
    if "chat_id" in row:
        chat, parent = row["chat_id"], row.get("parent_chat_id", -1)
        typed([chat, parent], WHOLE, "chat_id", block, "whole numbers")
        chats[chat] = chats.get(parent, str(parent)) if parent != -1 else str(chat)
        return chats[chat]
    value = row.get("session_id")
    if value is not None and type(value) not in (str, int):
        raise bad_value(block, index, "session_id", value, "a string")
    return None if value is None else str(value)
