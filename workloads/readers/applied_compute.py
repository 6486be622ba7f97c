"""Applied Compute's agent sessions, a session a line: lengths of a prompt, of answers, and of tool results with waits.

``assistant_response_length[i]`` is answered, a tool takes ``tool_call_latency[i]`` seconds and adds
``tool_call_output_length[i]`` tokens; after the last, ``final_assistant_response_length`` ends the session. Sessions
have no arrival times.
"""

from __future__ import annotations

from collections.abc import Iterator

from workloads.batch import OPEN_LOOP, RequestBatch
from workloads.clock import exact_ns
from workloads.content import PRIVATE_OUTPUT, PRIVATE_PROMPT, content_id
from workloads.errors import WorkloadError
from workloads.options import ReadOptions
from workloads.readers.json_rows import located
from workloads.readers.rows import Rows, text
from workloads.trace_file import TraceFile
from workloads.workload import Tally

SECOND = 10**9


def read(trace: TraceFile, tally: Tally, _: ReadOptions) -> Iterator[RequestBatch]:
    """The turns of all sessions."""
    rows = Rows()
    for number, row in enumerate(located(trace, tally)):
        answers = row.integers("assistant_response_length", 1, 10**9)
        results, waits = row.integers("tool_call_output_length", 0, 10**9), row.items("tool_call_latency")
        if not len(answers) == len(results) == len(waits):
            raise WorkloadError(
                f"{len(answers)} answers, {len(results)} tool results and {len(waits)} waits; a turn has one of each",
                where=row.where,
            )
        answers = [*answers, row.integer("final_assistant_response_length", 1)]
        context = text([content_id(f"{number}.0", PRIVATE_PROMPT)], [row.integer("input_prompt_length", 1)])
        for turn, answer in enumerate(answers):
            name, think = f"{number}.{turn}", OPEN_LOOP
            if turn:
                if type(waits[turn - 1]) not in (int, float) or not 0 <= waits[turn - 1] <= 10**9:
                    raise row.bad("tool_call_latency", waits[turn - 1], "seconds from 0 to 10^9")
                think = exact_ns(waits[turn - 1], SECOND)
                context = context + text([content_id(name, PRIVATE_PROMPT)], [results[turn - 1]])
            output = text([content_id(name, PRIVATE_OUTPUT)], [answer])
            rows.add(name, 0, context, output, session=str(number), turn=turn, think_ns=think, where=row.where)
            context = context + output
            tally.closed_only |= turn > 0
    tally.unplaced = "agent sessions of this format have no arrival times"
    if len(rows):
        yield rows.batch()
