"""The project's own JSON Lines.

One request per line: ``arrival_s``, ``output_tokens`` and either ``prompt_tokens`` (private content) or ``prompt``, a
list of spans ``[content, tokens]``; optional ``id`` (default: the row number from 0), ``output`` (spans),
``max_tokens`` (default ``output_tokens``), ``session``, ``priority``, ``cache_salt``, ``skip_cache``,
``encoder_tokens`` (of its input to a model's encoder; default: the model's longest), ``turn`` (default 0). A span is
the first ``tokens`` tokens of the endless text ``content``, a string or an integer.

A row with ``think_s`` closes the loop: it arrives so long after the last row of its session's turn before has been
answered. Its ``arrival_s`` repeats that of its session's first row.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from workloads.batch import OPEN_LOOP, RequestBatch, from_spans
from workloads.columns import (
    MAX_SECONDS,
    MAX_TOKENS,
    REAL,
    SECONDS_ALLOWED,
    TOKENS_ALLOWED,
    Order,
    bad_value,
    second_column,
    typed,
)
from workloads.content import I64, PRIVATE_OUTPUT, PRIVATE_PROMPT, content_id, hash_text, named, salt_id
from workloads.errors import WorkloadError
from workloads.options import ReadOptions
from workloads.readers.json_rows import check_keys, objects
from workloads.trace_file import RowBlock, TraceFile
from workloads.workload import Tally

KEYS = (
    "id",
    "arrival_s",
    "prompt",
    "prompt_tokens",
    "output_tokens",
    "output",
    "max_tokens",
    "session",
    "priority",
    "cache_salt",
    "skip_cache",
    "encoder_tokens",
    "turn",
    "think_s",
)
NUMBERS = ("prompt", "output", "max", "priority", "skip", "salt", "prompt_spans", "spans", "encoder", "turn", "think")
REQUIRED = frozenset({"arrival_s", "output_tokens"})
MAX_NAME = 1024
NAME_ALLOWED = f"a string of 1 to {MAX_NAME} characters or a whole number"
MAX_PRIORITY = 1 << 31


def read(trace: TraceFile, tally: Tally, _: ReadOptions) -> Iterator[RequestBatch]:
    """The requests of a native trace in file order. Raises `WorkloadError` at the first row that cannot be used."""
    order = Order("arrival_s")
    seen: set[int] = set()
    ordinal = 0
    for block in trace.rows(tally):
        rows = objects(block)
        check_keys(rows, REQUIRED, KEYS, block)
        arrivals = [row["arrival_s"] for row in rows]
        typed(arrivals, REAL, "arrival_s", block, "a number of seconds")
        arrival = second_column(arrivals, "arrival_s", block)
        order.check(arrival, block)
        parsed = RowParser(block, ordinal)
        for i, row in enumerate(rows):
            parsed.add(i, row)
        refuse_duplicates(parsed.ids, seen, block)
        yield parsed.batch(arrival)
        ordinal += len(rows)


class RowParser:
    """Turns the rows of one block, whose first is request number ``ordinal``, into columns."""

    def __init__(self, block: RowBlock, ordinal: int) -> None:
        self.block = block
        self.index = 0
        n = len(block.lines)
        rows: I64 = np.arange(ordinal, ordinal + n, dtype=np.int64)
        self.private_prompt: list[int] = named(rows, PRIVATE_PROMPT).tolist()
        self.private_output: list[int] = named(rows, PRIVATE_OUTPUT).tolist()
        self.ordinal = ordinal
        self.ids: list[str] = []
        self.sessions: list[str | None] = []
        self.numbers: dict[str, list[int]] = {name: [] for name in NUMBERS}
        self.contents: list[int] = []
        self.tokens: list[int] = []

    def add(self, index: int, row: dict[str, Any]) -> None:
        """Append the request of line ``index`` of the block."""
        self.index = index
        start = len(self.tokens)
        prompt = self.side(row, "prompt", self.private_prompt[index])
        prompt_spans = len(self.tokens) - start
        output = self.side(row, "output", self.private_output[index])
        longest = self.integer("max_tokens", row.get("max_tokens", output), 1, MAX_TOKENS, TOKENS_ALLOWED)
        if longest < output:
            raise self.bad("max_tokens", longest, f"output_tokens ({output}) or more")
        priority = row.get("priority", 0)
        skip = row.get("skip_cache", False)
        if type(skip) is not bool:
            raise self.bad("skip_cache", skip, "true or false")
        numbers = self.numbers
        numbers["prompt"].append(prompt)
        numbers["output"].append(output)
        numbers["max"].append(longest)
        numbers["priority"].append(
            self.integer("priority", priority, -MAX_PRIORITY, MAX_PRIORITY, "whole numbers of 32 bits")
        )
        numbers["skip"].append(skip)
        encoder = row.get("encoder_tokens")
        numbers["encoder"].append(
            0 if encoder is None else self.integer("encoder_tokens", encoder, 1, MAX_TOKENS, TOKENS_ALLOWED)
        )
        numbers["turn"].append(self.integer("turn", row.get("turn", 0), 0, MAX_TOKENS, "whole numbers from 0 to 10^9"))
        numbers["think"].append(self.think(row))
        numbers["salt"].append(self.salt(row.get("cache_salt")))
        numbers["prompt_spans"].append(prompt_spans)
        numbers["spans"].append(len(self.tokens) - start)
        self.ids.append(str(self.name("id", row.get("id", self.ordinal + index))))
        session = row.get("session")
        self.sessions.append(None if session is None else str(self.name("session", session)))

    def side(self, row: dict[str, Any], name: str, private: int) -> int:
        """Append the spans of the prompt or the output and return their tokens."""
        spans = row.get(name)
        key = f"{name}_tokens"
        if spans is None:
            if key not in row:
                where = self.block.where(self.index)
                raise WorkloadError("missing prompt_tokens, or prompt with its spans", where=where)
            count = self.integer(key, row[key], 1, MAX_TOKENS, TOKENS_ALLOWED)
            self.contents.append(private)
            self.tokens.append(count)
            return count
        total = self.spans(name, spans)
        if key in row and row[key] != total:
            raise self.bad(key, row[key], f"the sum of the spans of {name}, {total}")
        return total

    def spans(self, name: str, spans: Any) -> int:
        """Append given spans and return their tokens."""
        if type(spans) is not list or not spans:
            raise self.bad(name, spans, "a list of one or more spans [content, tokens]")
        total = 0
        for span in spans:
            if type(span) is not list or len(span) != 2:
                raise self.bad(f"a span of {name}", span, "[content, tokens]")
            count = self.integer(f"the length of a span of {name}", span[1], 1, MAX_TOKENS, TOKENS_ALLOWED)
            self.contents.append(content_id(self.name(f"the content of a span of {name}", span[0])))
            self.tokens.append(count)
            total += count
        if total > MAX_TOKENS:
            raise self.bad(f"the length of {name}", total, TOKENS_ALLOWED)
        return total

    def think(self, row: dict[str, Any]) -> int:
        """Nanoseconds between the answer a row waits for and its arrival; `OPEN_LOOP` when it waits for none."""
        seconds = row.get("think_s")
        if seconds is None:
            return OPEN_LOOP
        if row.get("session") is None or not row.get("turn"):
            raise self.bad("think_s", seconds, "beside a session and a turn from 1 on: it waits for the turn before")
        if type(seconds) not in REAL or not 0 <= seconds <= MAX_SECONDS:
            raise self.bad("think_s", seconds, SECONDS_ALLOWED)
        return round(float(seconds) * 10**9)

    def salt(self, value: Any) -> int:
        """The namespace of a salt, 0 without one."""
        return 0 if value is None else salt_id(self.name("cache_salt", value))

    def name(self, what: str, value: Any) -> str | int:
        """A JSON string or integer that names something."""
        if type(value) is str and 0 < len(value) <= MAX_NAME and (value.isascii() or encodable(value)):
            return value
        if type(value) is int:
            return value
        raise self.bad(what, value, NAME_ALLOWED)

    def integer(self, name: str, value: Any, low: int, high: int, allowed: str) -> int:
        """A JSON integer from ``low`` to ``high``."""
        if type(value) is not int or not low <= value <= high:
            raise self.bad(name, value, allowed)
        return value

    def bad(self, name: str, value: Any, allowed: str) -> WorkloadError:
        """The error for one value of the row at hand."""
        return bad_value(self.block, self.index, name, value, allowed)

    def batch(self, arrival_ns: I64) -> RequestBatch:
        """The requests added so far."""
        column = {name: np.array(values, dtype=np.int64) for name, values in self.numbers.items() if name != "salt"}
        return from_spans(
            self.ids,
            arrival_ns,
            column["prompt"],
            column["output"],
            prompt_spans=column["prompt_spans"],
            span_counts=column["spans"],
            span_content=np.array(self.contents, dtype=np.uint64),
            span_tokens=np.array(self.tokens, dtype=np.int64),
            max_tokens=column["max"],
            priority=column["priority"],
            skip_cache=column["skip"].astype(np.bool_),
            encoder_tokens=column["encoder"],
            turn=column["turn"],
            think_ns=column["think"],
            salt=np.array(self.numbers["salt"], dtype=np.uint64),
            sessions=self.sessions,
        )


def encodable(text: str) -> bool:
    """Whether a text can be written as UTF-8 (a lone surrogate cannot)."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def refuse_duplicates(ids: list[str], seen: set[int], block: RowBlock) -> None:
    """Raise for an id met before; ``seen`` keeps 64-bit hashes, so memory grows with the requests, not their ids."""
    for i, text in enumerate(ids):
        key = hash_text(text)
        if key in seen:
            raise WorkloadError(f"id {text!r} comes twice; each request needs its own", where=block.where(i))
        seen.add(key)
