"""Dynamo's ``agentic_mooncake``: a header line, then requests with what they depend on.

A row waits for the completion of others, or for their dispatch. Requests of one ``play_id`` are a session here, and its
turns are the depth of that graph: a request's turn is one more than the deepest it waits for, and it arrives
``delay_ms`` after that whole turn is answered. Where a request waits for less than a whole turn, or for a dispatch, it
waits here for more, or its delay is lost; such rows are counted as changed.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from workloads.batch import OPEN_LOOP, RequestBatch
from workloads.content import BLOCK, PRIVATE_OUTPUT, content_id, named_pair
from workloads.errors import WorkloadError
from workloads.options import ReadOptions
from workloads.readers.fields import Fields
from workloads.readers.json_rows import located
from workloads.readers.rows import Rows, blocks, text
from workloads.trace_file import TraceFile
from workloads.workload import Tally

SCHEMA = "dynamo.agentic_mooncake"
MS = 10**6


@dataclass(frozen=True, slots=True)
class Place:
    """Where a request stands in its play."""

    play: str
    turn: int
    think_ns: int
    arrival_ns: int


def read(trace: TraceFile, tally: Tally, options: ReadOptions) -> Iterator[RequestBatch]:
    """The requests of the plays; the first line's header says block size and scope of the ids."""
    lines = located(trace, tally)
    header = next(lines)
    if header.values.get("schema") != SCHEMA:
        raise header.bad("schema", header.values.get("schema"), f"{SCHEMA!r}, in a first line of its own")
    size = options.block_size or header.integer("block_size", 1)
    local = header.values.get("hash_id_scope") == "local"
    rows = Rows()
    places: dict[str, Place] = {}
    for row in lines:
        name = row.name("request_id")
        if name is None or name in places:
            raise row.bad("request_id", name, "a name that no other row has")
        place = places[name] = placed(row, places)
        add(rows, row, name, place, size, place.play if local else "", tally)
    tally.notes.update(trace_block_size=size)
    tally.closed_only = any(place.turn for place in places.values())
    tally.change("waits_for_a_whole_turn", looser(places, trace, Tally()))
    if len(rows):
        yield rows.batch()


def placed(row: Fields, places: dict[str, Place]) -> Place:
    """The play, turn and think time of a row, whose dependencies must stand above it."""
    play = row.name("play_id") or "play"
    start = row.time_ns("not_before_ms", MS, 0)
    turn, think = 0, OPEN_LOOP
    for dependency in row.objects("dependencies"):
        above = places.get(dependency.name("request_id") or "")
        if above is None:
            raise dependency.bad("request_id", dependency.values.get("request_id"), "a request of a line above")
        delay = dependency.time_ns("delay_ms", MS, 0)
        if dependency.values.get("trigger") == "dispatch":
            turn, think = max((turn, think), (above.turn, above.think_ns))
        else:
            turn, think = max((turn, think), (above.turn + 1, delay))
        start = max(start, above.arrival_ns)
    return Place(play, turn, think, start)


def add(rows: Rows, row: Fields, name: str, place: Place, size: int, scope: str, tally: Tally) -> None:
    """Append one request, unless it has no prompt or no output."""
    length, answer = row.integer("input_length"), row.integer("output_length")
    if not length or not answer:
        tally.skip("zero_output_tokens" if length else "zero_prompt_tokens", 1)
        return
    ids = np.array(row.integers("hash_ids"), dtype=np.uint64)
    space = np.full(len(ids), content_id(scope, BLOCK), dtype=np.uint64)
    prompt = blocks(named_pair(space, ids, BLOCK), size, length, content_id(name, BLOCK))
    if prompt is None:
        raise WorkloadError(f"{len(ids)} hash_ids do not cover {length} tokens in {size}-token blocks", where=row.where)
    output = text([content_id(name, PRIVATE_OUTPUT)], [answer])
    rows.add(
        name,
        place.arrival_ns,
        prompt,
        output,
        session=place.play,
        turn=place.turn,
        think_ns=place.think_ns,
        where=row.where,
    )


def looser(places: dict[str, Place], trace: TraceFile, tally: Tally) -> int:
    """How many requests wait here for other requests than in the file, or have lost a delay after a dispatch."""
    turns: dict[tuple[str, int], set[str]] = {}
    for name, place in places.items():
        turns.setdefault((place.play, place.turn), set()).add(name)
    lines = located(trace, tally)
    next(lines)
    count = 0
    for row in lines:
        place = places[str(row.name("request_id"))]
        needs = {str(one.name("request_id")) for one in row.objects("dependencies")}
        count += bool(needs or place.turn) and needs != turns.get((place.play, place.turn - 1), set())
    return count
