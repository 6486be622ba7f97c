"""kv-cache-tester sessions (also called WEKA traces): one JSON object a file, with the requests of one agent session.

``hash_ids`` name each full 64-token block of a prompt by a chained id that counts only within its file; tokens after
the last full block are of their own, and so are outputs, since the file does not say which later tokens repeat them.
Sub-agents nest one level, with times from their own start (or, in some copies, from the session's), and share their
parent's ids. Sessions have no date: every file starts at 0.

``think_time`` closes the loop: a turn comes so long after the answer to the one before. A request that was sent before
that answer was there (by ``api_time``), such as those of sub-agents side by side, runs beside it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from workloads.batch import OPEN_LOOP, RequestBatch
from workloads.content import BLOCK, PRIVATE_OUTPUT, content_id, named_pair
from workloads.errors import WorkloadError
from workloads.options import ReadOptions
from workloads.readers.fields import Fields
from workloads.readers.rows import Rows, blocks, text
from workloads.readers.turns import Turns
from workloads.trace_file import TraceFile
from workloads.workload import Tally

SECOND = 10**9


@dataclass(frozen=True, slots=True)
class Call:
    """One request of a session: when it starts, and its own fields."""

    time_ns: int
    fields: Fields


def read(trace: TraceFile, tally: Tally, options: ReadOptions) -> Iterator[RequestBatch]:
    """The requests of one session, sub-agents included; a copy of a session read before is left out and counted."""
    session = Fields(trace.document(), trace.label)
    calls = list(flat(session))
    if copy_of(session, tally):
        tally.skip("copy_of_another_session", len(calls))
        return
    size = options.block_size or session.integer("block_size", 1)
    name = session.name("id") or trace.label
    rows = Rows()
    turns = Turns()
    for number, call in enumerate(sorted(calls, key=lambda call: call.time_ns)):
        if not call.fields.integer("out") or not call.fields.integer("in"):
            tally.skip("zero_output_tokens" if call.fields.integer("in") else "zero_prompt_tokens", 1)
            continue
        add(rows, call, f"{name}-{number:03d}", name, size, turns)
    tally.notes["trace_block_size"] = size
    tally.notes["sessions"] = tally.notes.get("sessions", 0) + 1
    if tally.notes["sessions"] > 1:
        tally.unplaced = "sessions have no start of their own, and there is more than one"
    if len(rows):
        yield rows.batch()


def add(rows: Rows, call: Call, name: str, session: str, size: int, turns: Turns) -> None:
    """Append one call of a session."""
    length = call.fields.integer("in")
    ids = np.array(call.fields.integers("hash_ids"), dtype=np.uint64)
    space = np.full(len(ids), content_id(session, BLOCK), dtype=np.uint64)
    prompt = blocks(named_pair(space, ids, BLOCK), size, length, content_id(name, BLOCK))
    if prompt is None:
        raise WorkloadError(
            f"{len(ids)} hash_ids do not cover in = {length} tokens in {size}-token blocks", where=call.fields.where
        )
    took = call.fields.time_ns("api_time", SECOND, 0)
    turn, think = turns.next("", call.time_ns, call.time_ns + took)
    if think > OPEN_LOOP and "think_time" in call.fields:
        think = call.fields.time_ns("think_time", SECOND)
    rows.add(
        name,
        call.time_ns,
        prompt,
        text([content_id(name, PRIVATE_OUTPUT)], [call.fields.integer("out")]),
        session=session,
        turn=turn,
        think_ns=think,
        where=call.fields.where,
    )


def flat(session: Fields) -> Iterator[Call]:
    """The calls of a session in file order; a sub-agent's times count from its own start, or from the session's."""
    for request in session.objects("requests"):
        start = request.time_ns("t", SECOND)
        if request.values.get("type") != "subagent":
            yield Call(start, request)
            continue
        inner = list(request.objects("requests"))
        times = [call.time_ns("t", SECOND) for call in inner]
        base = 0 if times and times[0] >= start > 0 else start
        for call, time in zip(inner, times, strict=True):
            yield Call(base + time, call)


def copy_of(session: Fields, tally: Tally) -> bool:
    """Whether the same requests came in a session read before, under another id."""
    seen: dict[str, Any] = tally.memory.setdefault("sessions", {})
    digest = hashlib.sha256(repr(session.values.get("requests")).encode()).hexdigest()
    return bool(seen.setdefault(digest, session.where) != session.where)
