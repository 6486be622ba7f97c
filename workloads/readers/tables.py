"""Tables with named columns: CSV, JSON Lines or Parquet, by a mapping of what a request needs to a column's name.

Published tables have their mapping here; for any other ``workload.columns`` gives one, as in
``{arrival: start_ms, prompt_tokens: isl, output_tokens: osl}``. Times are ISO dates, dates as numbers since 1970, or
numbers whose unit the column's name ends in (``_s``, ``_ms``, ``_us``, ``_ns``) or ``workload.time_unit`` gives; they
count from the first row. A column that nothing maps is left alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from workloads.batch import RequestBatch, from_table
from workloads.clock import STAMPS_ALLOWED, epoch_ns, epoch_unit, exact_ns, iso_ns, mixed_units
from workloads.columns import Order, bad_value, reals, token_column
from workloads.content import I64, PRIVATE_OUTPUT, PRIVATE_PROMPT, content_id, named
from workloads.errors import WorkloadError, unknown
from workloads.options import UNITS_NS, ReadOptions
from workloads.parquet import ParquetFile
from workloads.readers.csv_rows import csv_columns, split_header
from workloads.readers.json_rows import objects
from workloads.trace_file import RowBlock, TraceFile
from workloads.workload import Tally

ROLES = ("arrival", "prompt_tokens", "output_tokens", "id", "session", "prefix_id", "prefix_tokens")
REQUIRED = ("prompt_tokens", "output_tokens")
Block = tuple[dict[str, Sequence[Any]], RowBlock]


@dataclass(frozen=True, slots=True)
class Table:
    """A published table: the column of each role (lower case), and the unit of numbers of time (None: dates)."""

    columns: Mapping[str, str]
    unit: str | None = "s"


BURSTGPT = Table(
    {"arrival": "timestamp", "prompt_tokens": "request tokens", "output_tokens": "response tokens"}
    | {"session": "session id"}
)
AZURE_MULTIMODAL = Table(
    {"arrival": "timestamp", "prompt_tokens": "contexttokens", "output_tokens": "generatedtokens"}, None
)
VIDUR = Table({"arrival": "arrived_at", "prompt_tokens": "num_prefill_tokens", "output_tokens": "num_decode_tokens"})
SPLITWISE = Table({"arrival": "arrival_timestamp", "prompt_tokens": "prompt_size", "output_tokens": "token_size"})


def burstgpt(trace: TraceFile, tally: Tally, _: ReadOptions) -> Iterator[RequestBatch]:
    """BurstGPT, any version: columns by name, a session where one is named, failures (no response) left out."""
    return read_table(trace, tally, BURSTGPT)


def azure_multimodal(trace: TraceFile, tally: Tally, _: ReadOptions) -> Iterator[RequestBatch]:
    """Azure's multimodal trace of 2025; ``NumImages`` is left alone."""
    return read_table(trace, tally, AZURE_MULTIMODAL)


def vidur(trace: TraceFile, tally: Tally, _: ReadOptions) -> Iterator[RequestBatch]:
    """Vidur's processed traces; its files of lengths alone have no arrivals."""
    return read_table(trace, tally, VIDUR)


def splitwise(trace: TraceFile, tally: Tally, _: ReadOptions) -> Iterator[RequestBatch]:
    """Traces of splitwise-sim."""
    return read_table(trace, tally, SPLITWISE)


def mapped(trace: TraceFile, tally: Tally, options: ReadOptions) -> Iterator[RequestBatch]:
    """A table whose columns ``workload.columns`` names."""
    for role in options.columns:
        if role not in ROLES:
            raise unknown("key", role, ROLES, "workload.columns")
    missing = [role for role in REQUIRED if role not in options.columns]
    if missing:
        raise WorkloadError(f"{', '.join(missing)} missing; say which column holds it", where="workload.columns")
    columns = {role: name.strip().lower() for role, name in options.columns.items()}
    return read_table(trace, tally, Table(columns, options.time_unit or unit_of(columns.get("arrival", ""))))


def unit_of(name: str) -> str | None:
    """The unit a column's name ends in.

    >>> unit_of("start_ms"), unit_of("arrival_s"), unit_of("time")
    ('ms', 's', None)
    """
    ending = name.rpartition("_")[2]
    return ending if ending in UNITS_NS and "_" in name else None


def read_table(trace: TraceFile, tally: Tally, table: Table) -> Iterator[RequestBatch]:
    """The requests of a table in row order; rows without prompt or output are counted in ``tally`` and left out."""
    order = Order(table.columns.get("arrival", "arrival"))
    clock = Clock(table)
    ordinal = 0
    for columns, block in blocks(trace, tally, [*table.columns.values()]):
        given = {role: columns[name] for role, name in table.columns.items() if name in columns}
        missing = [table.columns[role] for role in REQUIRED if role not in given]
        if missing:
            raise WorkloadError(
                f"no column {', '.join(map(repr, missing))}; there is {', '.join(columns)}", where=trace.label
            )
        if "arrival" in given:
            arrival = clock.ns(given["arrival"], block)
            order.check(arrival, block)
        else:
            arrival = np.zeros(len(given["prompt_tokens"]), dtype=np.int64)
            tally.unplaced = "the table has no column of arrival times"
        yield parse(given, table, arrival, block, ordinal, tally)
        ordinal += len(arrival)


def parse(
    given: Mapping[str, Sequence[Any]], table: Table, arrival: I64, block: RowBlock, ordinal: int, tally: Tally
) -> RequestBatch:
    """The requests of one block whose first row is number ``ordinal``."""
    prompt = token_column(given["prompt_tokens"], table.columns["prompt_tokens"], block, low=0)
    output = token_column(given["output_tokens"], table.columns["output_tokens"], block, low=0)
    kept = tally.keep(prompt, output)
    rows = np.arange(ordinal, ordinal + len(prompt), dtype=np.int64)
    content = [named(rows, PRIVATE_PROMPT), named(rows, PRIVATE_OUTPUT)]
    tokens = [prompt, output]
    if "prefix_tokens" in given and "prefix_id" in given:
        prefix = token_column(
            [value or 0 for value in given["prefix_tokens"]], table.columns["prefix_tokens"], block, low=0
        )
        if (prefix > prompt).any():
            i = int(np.flatnonzero(prefix > prompt)[0])
            raise bad_value(block, i, table.columns["prefix_tokens"], int(prefix[i]), f"0 to the prompt's, {prompt[i]}")
        content.insert(0, np.array([content_id(str(name)) for name in given["prefix_id"]], dtype=np.uint64))
        tokens = [prefix, prompt - prefix, output]
    names = given.get("id")
    sessions = given.get("session")
    return from_table(
        [str(names[i]) if names else str(ordinal + i) for i in kept.tolist()],
        arrival[kept],
        np.stack(content, axis=1)[kept],
        np.stack(tokens, axis=1)[kept],
        sessions=[str(sessions[i]) if sessions and sessions[i] not in (None, "") else None for i in kept.tolist()],
    )


class Clock:
    """Reads the times of a table, block by block, from its first row on."""

    def __init__(self, table: Table) -> None:
        self._name = table.columns.get("arrival", "arrival")
        self._unit = table.unit
        self._start: int | None = None

    def ns(self, given: Sequence[Any], block: RowBlock) -> I64:
        """Nanoseconds since the first row."""
        stamps = self._dates(given, block) if is_date(given) else self._numbers(given, block)
        if self._start is None and len(stamps):
            self._start = int(stamps[0])
        return stamps - (self._start or 0)

    def _dates(self, given: Sequence[Any], block: RowBlock) -> I64:
        moments = [iso_ns(str(value).strip()) for value in given]
        if None in moments:
            bad = moments.index(None)
            raise bad_value(block, bad, self._name, given[bad], STAMPS_ALLOWED)
        return np.array(moments, dtype=np.int64)

    def _numbers(self, given: Sequence[Any], block: RowBlock) -> I64:
        times = reals(given, self._name, block)
        exact = [
            float(value) if isinstance(value, str) and not value.strip().isdecimal() else int_or(value)
            for value in given
        ]
        epoch = epoch_unit(times[0]) if len(times) and self._unit is None else None
        if epoch is not None:
            dates = epoch_ns(exact, epoch[0])
            if dates is None:
                bad = next(i for i, value in enumerate(exact) if epoch_unit(value) != epoch)
                raise mixed_units(self._name, given[bad], epoch[1], block.where(bad))
            return dates
        if self._unit is None:
            raise WorkloadError(
                f"{self._name} holds numbers of an unknown unit; set workload.time_unit to s, ms, us or ns",
                where=block.where(0),
            )
        unit = UNITS_NS[self._unit]
        wrong = np.flatnonzero(~((times >= 0) & (times * unit < 9e18)))
        if len(wrong):
            raise bad_value(block, int(wrong[0]), self._name, given[int(wrong[0])], f"times in {self._unit} from 0 on")
        return np.array([exact_ns(value, unit) for value in exact], dtype=np.int64)


def int_or(value: Any) -> Any:
    """A text of digits as a whole number, anything else as it is."""
    return int(value) if isinstance(value, str) else value


def is_date(given: Sequence[Any]) -> bool:
    """Whether the first value is a date as text."""
    return bool(given) and isinstance(given[0], str) and "-" in given[0].strip()[1:]


def blocks(trace: TraceFile, tally: Tally, wanted: Sequence[str]) -> Iterator[Block]:
    """The wanted columns of a table, by lower-case name, a block of rows at a time."""
    if trace.parquet:
        yield from parquet_blocks(trace, wanted)
    elif trace.first_line[1].startswith("{"):
        for block in trace.rows(tally):
            rows = [{key.lower(): value for key, value in row.items()} for row in objects(block)]
            names = [name for name in wanted if any(name in row for row in rows)] or sorted(rows[0])
            yield {name: [row.get(name) for row in rows] for name in names}, block
    else:
        header = split_header(trace.first_line[1])
        for block in trace.rows(tally, header=True):
            yield csv_columns(block, header), block


def parquet_blocks(trace: TraceFile, wanted: Sequence[str]) -> Iterator[Block]:
    """The wanted columns of a Parquet table; a block's row numbers count from 1."""
    file = ParquetFile(trace.path, trace.label)
    names = {name.lower(): name for name in file.columns}
    found = [name for name in wanted if name in names]
    if not found:
        yield {name: [] for name in names}, RowBlock(f"{trace.label}: row", range(1, 1), [])
    first = 1
    for batch in file.batches([names[name] for name in found]):
        block = RowBlock(f"{trace.label}: row", range(first, first + batch.num_rows), [""] * batch.num_rows)
        first += batch.num_rows
        yield {name: file.values(batch.column(i)) for i, name in enumerate(found)}, block
