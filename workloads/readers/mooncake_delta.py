"""Mooncake JSON Lines with ``session_id`` and ``delay``: later rows hold only what a turn adds to its session.

``input_length`` and ``hash_ids`` of a later row are the new tokens; the prompt is what the turn before read and wrote,
then those. ``delay`` (ms) runs from the answer to the turn before, so such a session is a closed loop::

    turn 0   |-- hash_ids, input_length --|                           -> out 0
    turn 1   |-- of turn 0 ---------------|- out 0 -|- hash_ids 1 -|  -> out 1

Rows without ``hash_ids`` add text of their own. The default block size is 512 tokens.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from workloads.batch import OPEN_LOOP, RequestBatch
from workloads.content import MOONCAKE, PIECE, PRIVATE_OUTPUT, content_id, named
from workloads.errors import WorkloadError
from workloads.options import ReadOptions
from workloads.readers.fields import Fields
from workloads.readers.json_rows import located
from workloads.readers.rows import Rows, Text, text
from workloads.trace_file import TraceFile
from workloads.workload import Tally

DEFAULT_BLOCK = 512
MS = 10**6
TIMES = ("timestamp", "created_time")
INPUTS = ("input_length", "input_tokens")
OUTPUTS = ("output_length", "output_tokens")
KEYS = (*TIMES, *INPUTS, *OUTPUTS, "delay", "session_id", "hash_ids", "request_id", "block_size", "model")


@dataclass(slots=True)
class Session:
    """What a session's turns so far have read and written, and when its first one arrived."""

    arrival_ns: int
    turns: int
    context: Text


def read(trace: TraceFile, tally: Tally, options: ReadOptions) -> Iterator[RequestBatch]:
    """The requests of a trace whose rows are increments of sessions."""
    rows = Rows()
    sessions: dict[str, Session] = {}
    for number, row in enumerate(located(trace, tally)):
        new, answer = added(row, number, options), row.integer(row.first(OUTPUTS))
        if not len(new) or not answer:
            tally.skip("zero_output_tokens" if len(new) else "zero_prompt_tokens", 1)
            continue
        name = row.name("session_id")
        session = sessions.get(name) if name else None
        arrival = row.time_ns(row.first(TIMES), MS, None if session is None else session.arrival_ns)
        tally.closed_only |= session is not None
        output = text([content_id(f"{name}/{number}", PRIVATE_OUTPUT)], [answer])
        prompt = new if session is None else session.context + new
        turn = 0 if session is None else session.turns
        rows.add(
            row.name("request_id") or str(number),
            arrival,
            prompt,
            output,
            session=name,
            turn=turn,
            think_ns=OPEN_LOOP if session is None else row.time_ns("delay", MS, 0),
            where=row.where,
        )
        if name:
            start = arrival if session is None else session.arrival_ns
            sessions[name] = Session(start, turn + 1, prompt + output)
    tally.notes.update(dialect="delta", trace_block_size=options.block_size or DEFAULT_BLOCK)
    if len(rows):
        yield rows.batch()


def added(row: Fields, number: int, options: ReadOptions) -> Text:
    """The tokens a row adds: of its block ids as far as they reach, all of them its own without any."""
    unknown = row.values.keys() - set(KEYS)
    if unknown:
        key = min(unknown)
        raise WorkloadError(f"unknown key {key!r}; allowed: {', '.join(KEYS)}", where=row.where)
    length = row.integer(row.first(INPUTS))
    ids = row.integers("hash_ids")
    if not ids:
        return text([content_id(number, PIECE)], [length])
    size = options.block_size or row.integer("block_size", 1, default=DEFAULT_BLOCK)
    if len(ids) != -(-length // size):
        raise WorkloadError(
            f"{len(ids)} hash_ids do not cover {length} tokens in {size}-token blocks; for another size set "
            "workload.block_size",
            where=row.where,
        )
    tokens = np.full(len(ids), size, dtype=np.int64)
    tokens[-1] = length - size * (len(ids) - 1)
    return Text(named(np.array(ids, dtype=np.uint64), MOONCAKE), tokens)
