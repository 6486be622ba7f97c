"""TraceLab rounds of coding agents (JSON Lines), and its closed-loop session tables (CSV).

Neither names content. A round says how many tokens the engine found in its cache (``prefix_tokens``): they are taken as
the first tokens of what the session's round before read and wrote, or, beyond that, of a text that all first rounds of
a model share, such as tools and system prompt. The rest is new.

A round is submitted at its last input event; its answer ends at its last event; what lies between two rounds is the
time its tools, or its user, took.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from workloads.batch import RequestBatch
from workloads.clock import STAMPS_ALLOWED, iso_ns
from workloads.content import PIECE, PRIVATE_OUTPUT, PRIVATE_PROMPT, content_id
from workloads.errors import WorkloadError
from workloads.options import ReadOptions
from workloads.readers.fields import Fields
from workloads.readers.json_rows import located
from workloads.readers.rows import Rows, Text, text
from workloads.readers.turns import Turns
from workloads.trace_file import TraceFile
from workloads.workload import Tally

INPUT_EVENTS = frozenset({"user_message", "tool_result"})


def read(trace: TraceFile, tally: Tally, _: ReadOptions) -> Iterator[RequestBatch]:
    """The rounds, sorted by submission."""
    rounds = [(submitted(row), answered(row), row) for row in located(trace, tally)]
    rows, turns = Rows(), Turns()
    contexts: dict[str, Text] = {}
    for start, end, row in sorted(rounds, key=lambda one: one[0]):
        length, answer = row.integer("input_tokens_total"), row.integer("output_tokens")
        if not length or not answer:
            tally.skip("zero_output_tokens" if length else "zero_prompt_tokens", 1)
            continue
        session = row.name("session_id") or "session"
        name = row.name("round_id") or f"{session}.{row.integer('round_index')}"
        turn, think = turns.next(session, start, end)
        cached = row.integer("prefix_tokens", 0, length, default=0)
        prompt = continued(contexts.get(session, shared_start(row)), cached, length, f"{session}/{len(rows)}")
        output = text([content_id(name, PRIVATE_OUTPUT)], [answer])
        contexts[session] = prompt + output
        rows.add(name, start, prompt, output, session=session, turn=turn, think_ns=think, where=row.where)
    tally.notes["shared_prefix"] = "as the engine reported it (prefix_tokens), not from content"
    if len(rows):
        yield rows.batch()


def shared_start(row: Fields) -> Text:
    """The endless text that first rounds of a model start with."""
    return text([content_id(f"start/{row.name('provider')}/{row.name('model')}", PIECE)], [1])


def continued(before: Text, cached: int, length: int, name: str) -> Text:
    """A prompt of ``length`` tokens whose first ``cached`` ones are those of ``before``, as far as it goes.

    The last span of ``before`` is endless when ``before`` is a shared start.

    >>> (
    ...     continued(text([1, 2], [10, 5]), 12, 20, "x").tokens.tolist(),
    ...     continued(text([1], [1]), 12, 20, "x").tokens.tolist(),
    ... )
    ([10, 2, 8], [12, 8])
    """
    if len(before.tokens) == 1 and before.tokens[0] == 1:
        return text([int(before.content[0]), content_id(name, PRIVATE_PROMPT)], [cached, length - cached])
    ends = np.cumsum(before.tokens)
    kept = np.minimum(np.maximum(cached - (ends - before.tokens), 0), before.tokens)
    repeated = text(before.content.tolist(), kept.tolist())
    return repeated + text([content_id(name, PRIVATE_PROMPT)], [length - len(repeated)])


def submitted(row: Fields) -> int:
    """When a round was submitted: its last input event, or else its first event."""
    events = [(event.name("event_type"), stamp(event)) for event in row.objects("timing_events")]
    if not events:
        raise WorkloadError("timing_events is empty; a round needs the time of at least one event", where=row.where)
    return max((time for kind, time in events if kind in INPUT_EVENTS), default=events[0][1])


def answered(row: Fields) -> int:
    """When the answer of a round was complete: its last event."""
    return max(stamp(event) for event in row.objects("timing_events"))


def stamp(event: Fields) -> int:
    """Nanoseconds since 1970 of an event's ISO time stamp."""
    value = event.text("timestamp")
    moment = iso_ns(value)
    if moment is None:
        raise event.bad("timestamp", value, STAMPS_ALLOWED)
    return moment
