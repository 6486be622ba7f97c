"""Dynamo request traces (``dynamo.request.trace.v1``): one event a line, of which ``request_end`` is a request.

Times are milliseconds since 1970. ``replay`` holds the prompt's length and the hashes of its blocks. Rounds of one
``agent_context.session_id`` follow each other: the gap between the end of one and the next is its think time.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from workloads.batch import OPEN_LOOP, RequestBatch
from workloads.content import BLOCK, PRIVATE_OUTPUT, content_id, named
from workloads.errors import WorkloadError
from workloads.options import ReadOptions
from workloads.readers.fields import Fields
from workloads.readers.json_rows import located
from workloads.readers.rows import Rows, Text, blocks, text
from workloads.readers.turns import Turns
from workloads.trace_file import TraceFile
from workloads.workload import Tally

SCHEMA = "dynamo.request.trace.v1"
END = "request_end"
MS = 10**6


def read(trace: TraceFile, tally: Tally, options: ReadOptions) -> Iterator[RequestBatch]:
    """The finished requests; lines of other events are counted in ``tally`` as skipped."""
    ends: list[tuple[int, str, Fields]] = []
    for row in located(trace, tally):
        if row.values.get("event_type") != END:
            tally.skip("other_events", 1)
            continue
        request = row.inner("request")
        session = row.inner("agent_context").name("session_id") if "agent_context" in row else None
        ends.append((request.time_ns("request_received_ms", MS), session or "", request))
    rows, turns = Rows(), Turns()
    for received, session, request in sorted(ends, key=lambda end: end[0]):
        answer, replay = request.integer("output_tokens"), request.inner("replay")
        if not answer or not replay.integer("input_length"):
            tally.skip("zero_output_tokens", 1)
            continue
        name = request.name("request_id") or str(len(rows))
        turn, think = turns.next(session, received, received + request.time_ns("total_time_ms", MS, 0))
        rows.add(
            name,
            received,
            prompt_of(replay, name, options),
            text([content_id(name, PRIVATE_OUTPUT)], [answer]),
            session=session or None,
            turn=turn,
            think_ns=think if session else OPEN_LOOP,
            where=request.where,
        )
    if len(rows):
        yield rows.batch()


def prompt_of(replay: Fields, name: str, options: ReadOptions) -> Text:
    """The prompt by its block hashes."""
    size = options.block_size or replay.integer("trace_block_size", 1)
    length, hashes = replay.integer("input_length"), replay.integers("input_sequence_hashes", -(1 << 63))
    words: Any = np.array([value & ((1 << 64) - 1) for value in hashes], dtype=np.uint64)
    prompt = blocks(named(words, BLOCK), size, length, content_id(name, BLOCK))
    if prompt is None:
        raise WorkloadError(
            f"{len(hashes)} input_sequence_hashes do not cover {length} tokens in {size}-token blocks",
            where=replay.where,
        )
    return prompt
