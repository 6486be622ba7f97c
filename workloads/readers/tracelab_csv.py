"""TraceLab's session tables: ``session_id,arrival_time,round_idx,prefix_len,input_len,output_len,tool_wait_after_ms``.

``arrival_time`` (ms) is that of the session; ``input_len`` is what a round adds to ``prefix_len`` tokens of what the
session read and wrote before; the next round comes ``tool_wait_after_ms`` after the answer.
"""

from __future__ import annotations

from collections.abc import Iterator

from workloads.batch import OPEN_LOOP, RequestBatch
from workloads.columns import token_column
from workloads.content import PRIVATE_OUTPUT, PRIVATE_PROMPT, content_id
from workloads.errors import WorkloadError
from workloads.options import ReadOptions
from workloads.readers.csv_rows import csv_columns, csv_header
from workloads.readers.rows import Rows, Text, text
from workloads.readers.tracelab import continued
from workloads.trace_file import TraceFile
from workloads.workload import Tally

COLUMNS = ("session_id", "arrival_time", "round_idx", "prefix_len", "input_len", "output_len", "tool_wait_after_ms")
MS = 10**6


def read(trace: TraceFile, tally: Tally, _: ReadOptions) -> Iterator[RequestBatch]:
    """The rounds of all sessions; each session's rows stand in order."""
    header = csv_header(trace, COLUMNS)
    rows = Rows()
    last: dict[str, tuple[int, int, Text]] = {}
    for block in trace.rows(tally, header=True):
        columns = csv_columns(block, header)
        numbers = [token_column(columns[name], name, block, low=0).tolist() for name in COLUMNS[1:]]
        for i, (session, values) in enumerate(zip(columns["session_id"], zip(*numbers, strict=True), strict=True)):
            where = block.where(i)
            arrival, number, prefix, new, answer, wait = values
            before = last.get(session)
            if number != (before[0] + 1 if before else 0) or prefix > (len(before[2]) if before else 0):
                raise WorkloadError(
                    f"round {number} with a prefix of {prefix} tokens does not continue its session; rounds count from "
                    "0 and repeat at most what was read and written before",
                    where=where,
                )
            if not prefix + new or not answer:
                raise WorkloadError("a round without a prompt or an answer", where=where)
            name = f"{session}.{number}"
            prompt = repeated(before, prefix) + text([content_id(name, PRIVATE_PROMPT)], [new])
            think = OPEN_LOOP if before is None else before[1]
            output = text([content_id(name, PRIVATE_OUTPUT)], [answer])
            rows.add(name, arrival * MS, prompt, output, session=session, turn=number, think_ns=think, where=where)
            last[session] = (number, wait * MS, prompt + output)
            tally.closed_only |= number > 0
    if len(rows):
        yield rows.batch()


def repeated(before: tuple[int, int, Text] | None, tokens: int) -> Text:
    """The first ``tokens`` tokens of what a session has read and written."""
    return text([], []) if before is None else continued(before[2], tokens, tokens, "")
