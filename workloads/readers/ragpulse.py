"""RAGPulse: a prompt is components with ids, whose token lengths stand in files beside the trace.

``hash_ids`` is an object of lists: system prompt, passages, history, web search, user input, taken in that order. Their
lengths come from ``1_sys_prompt.jsonl`` to ``5_web_search.jsonl`` in the same folder; what ``input_length`` has beyond
their sum (6 to 12 tokens) ends the prompt with tokens of its own. ``timestamp`` is a string of whole seconds. The
published file holds two weeks on one axis: where its clock starts again, a week is added.
"""

from __future__ import annotations

from collections.abc import Iterator

from workloads.batch import RequestBatch
from workloads.columns import MAX_TOKENS
from workloads.content import PIECE, PRIVATE_OUTPUT, PRIVATE_PROMPT, content_id
from workloads.errors import WorkloadError
from workloads.options import ReadOptions
from workloads.readers.fields import Fields
from workloads.readers.json_rows import located
from workloads.readers.rows import Rows, Text, text
from workloads.trace_file import TraceFile
from workloads.workload import Tally

SECOND = 10**9
WEEK_NS = 604_800 * SECOND
# Component, file beside the trace, key of the id in it.
COMPONENTS = (
    ("sys_prompt", "1_sys_prompt.jsonl", "sys_prompt_id"),
    ("passages_ids", "2_passages.jsonl", "passage_id"),
    ("history", "3_history.jsonl", "history_id"),
    ("web_search", "5_web_search.jsonl", "web_search_id"),
    ("user_input", "4_user_input.jsonl", "user_input_id"),
)
Lengths = dict[tuple[str, int], int]


def read(trace: TraceFile, tally: Tally, _: ReadOptions) -> Iterator[RequestBatch]:
    """The requests in file order, a week later after each start of the clock."""
    lengths = companions(trace)
    rows = Rows()
    week = before = 0
    for number, row in enumerate(located(trace, tally)):
        time_ns = seconds(row) * SECOND
        if time_ns < before - WEEK_NS // 2:
            week += 1
        elif time_ns < before:
            raise WorkloadError("timestamp goes backwards; sort the rows by arrival", where=row.where)
        before = time_ns
        tally.change("a_week_added_where_the_clock_starts_again", int(week > 0))
        length, answer = row.integer("input_length"), row.integer("output_length")
        if not length or not answer:
            tally.skip("zero_output_tokens" if length else "zero_prompt_tokens", 1)
            continue
        output = text([content_id(number, PRIVATE_OUTPUT)], [answer])
        rows.add(
            str(number),
            time_ns + week * WEEK_NS,
            prompt_of(row, length, number, lengths),
            output,
            session=row.name("session_id"),
            where=row.where,
        )
    tally.notes["weeks"] = week + 1
    if len(rows):
        yield rows.batch()


def seconds(row: Fields) -> int:
    """The time stamp of a row: a string, or number, of whole seconds."""
    given = row.values.get("timestamp")
    if isinstance(given, str) and given.isascii() and given.isdecimal() and len(given) < 10:
        return int(given)
    return row.integer("timestamp")


def prompt_of(row: Fields, length: int, number: int, lengths: Lengths) -> Text:
    """The components of a prompt and what follows them."""
    ids = row.inner("hash_ids")
    parts = [(name, part) for name, _, _ in COMPONENTS for part in ids.integers(name)]
    missing = next((part for part in parts if part not in lengths), None)
    if missing is not None:
        raise WorkloadError(f"{missing[0]} {missing[1]} has no length in the files beside the trace", where=row.where)
    tokens = [lengths[part] for part in parts]
    rest = length - sum(tokens)
    if rest < 0:
        raise WorkloadError(
            f"input_length is {length}; allowed: {sum(tokens)}, what its components have, or more", where=row.where
        )
    content = [content_id(f"{name}/{part}", PIECE) for name, part in parts]
    return text([*content, content_id(number, PRIVATE_PROMPT)], [*tokens, rest])


def companions(trace: TraceFile) -> Lengths:
    """The token length of each component, from the files beside the trace."""
    lengths: Lengths = {}
    for name, file, key in COMPONENTS:
        path = trace.path.parent / file
        if not path.is_file():
            raise WorkloadError(
                f"{file} is not beside the trace; RAGPulse needs its five files of token lengths", where=trace.label
            )
        for row in located(TraceFile(path, str(path)), Tally()):
            lengths[name, row.integer(key)] = row.integer("token_length", 0, MAX_TOKENS)
    return lengths
