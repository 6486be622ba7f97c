"""LLMServingSim JSON Lines: lengths or token ids, in nanoseconds; agentic rows; and the requests of its vLLM runs.

``input_tok_ids`` give exact content: ids are grouped by 16, each group named by its tokens. A row with
``sub_requests`` is a session whose next call comes ``tool_duration_ns`` after the answer to the one before. Rows with
``queued_ts`` are a measured run: ``arrival_time`` is a date, the others another clock, so only it is used.
"""

from __future__ import annotations

from collections.abc import Iterator

from workloads.batch import OPEN_LOOP, RequestBatch
from workloads.content import PRIVATE_OUTPUT, PRIVATE_PROMPT, content_id
from workloads.options import ReadOptions
from workloads.readers.fields import Fields
from workloads.readers.json_rows import located
from workloads.readers.rows import Rows, Text, text, token_text
from workloads.trace_file import TraceFile
from workloads.workload import Tally

SECOND = 10**9
GROUP = 16
TOKEN = (0, (1 << 32) - 1)


def read(trace: TraceFile, tally: Tally, options: ReadOptions) -> Iterator[RequestBatch]:
    """The requests, and the calls of sessions as turns."""
    rows = Rows()
    size = options.block_size or GROUP
    for number, row in enumerate(located(trace, tally)):
        measured = "arrival_time" in row
        arrival = row.time_ns("arrival_time", SECOND) if measured else row.time_ns("arrival_time_ns", 1)
        if "sub_requests" not in row:
            add(rows, row, tally, row.name("request_id") or str(number), arrival, size)
            continue
        session = row.name("session_id") or str(number)
        think = OPEN_LOOP
        for turn, call in enumerate(row.objects("sub_requests")):
            add(rows, call, tally, f"{session}.{turn}", arrival, size, session=session, turn=turn, think_ns=think)
            think = call.time_ns("tool_duration_ns", 1, 0)
            tally.closed_only |= turn > 0
    if len(rows):
        yield rows.batch()


def add(
    rows: Rows,
    row: Fields,
    tally: Tally,
    name: str,
    arrival_ns: int,
    size: int,
    *,
    session: str | None = None,
    turn: int = 0,
    think_ns: int = OPEN_LOOP,
) -> None:
    """Append one request, unless it has no prompt or no output."""
    length, answer = row.integer("input_toks"), row.integer("output_toks")
    if not length or not answer:
        tally.skip("zero_output_tokens" if length else "zero_prompt_tokens", 1)
        return
    prompt = side(row, "input_tok_ids", length, content_id(name, PRIVATE_PROMPT), size)
    output = text([content_id(name, PRIVATE_OUTPUT)], [answer])
    rows.add(name, arrival_ns, prompt, output, session=session, turn=turn, think_ns=think_ns, where=row.where)


def side(row: Fields, key: str, length: int, private: int, size: int) -> Text:
    """A prompt by its token ids, in groups of ``size`` (the last one shorter); of its own content without ids."""
    ids = row.integers(key, *TOKEN)
    if not ids:
        return text([private], [length])
    if len(ids) != length:
        raise row.bad(key, len(ids), f"as many ids as tokens, {length}")
    return token_text(ids, size)
