"""AIBrix workloads: a line per instant (``timestamp``, ms) with the list of its ``requests``.

Older files say ``Prompt Length`` and ``Output Length``, newer ones ``prompt_length``, ``output_length`` and
``session_id``. A prompt's text, if given, names its content: equal prompts are equal. A request without an output
length is left out and counted. Lines without requests are instants at which nothing comes.
"""

from __future__ import annotations

from collections.abc import Iterator

from workloads.batch import RequestBatch
from workloads.columns import MAX_TOKENS
from workloads.content import PIECE, PRIVATE_OUTPUT, PRIVATE_PROMPT, content_id, hash_text
from workloads.errors import WorkloadError
from workloads.options import ReadOptions
from workloads.readers.fields import Fields
from workloads.readers.json_rows import located
from workloads.readers.rows import Rows, text
from workloads.trace_file import TraceFile
from workloads.workload import Tally

MS = 10**6
PROMPT = ("prompt_length", "Prompt Length")
OUTPUT = ("output_length", "Output Length")


def read(trace: TraceFile, tally: Tally, _: ReadOptions) -> Iterator[RequestBatch]:
    """The requests of all instants."""
    rows = Rows()
    for line in located(trace, tally):
        instant = line.time_ns("timestamp", MS)
        for request in line.objects("requests"):
            add(rows, request, instant, tally)
    if len(rows):
        yield rows.batch()


def add(rows: Rows, request: Fields, instant_ns: int, tally: Tally) -> None:
    """Append one request of an instant, if it says how long prompt and output are."""
    length = request.integer(request.first(PROMPT), 0, MAX_TOKENS)
    answer = request.integer(request.first(OUTPUT), 0, MAX_TOKENS, default=0)
    if not length or not answer:
        tally.skip("no_output_tokens" if length else "zero_prompt_tokens", 1)
        return
    given = request.values.get("prompt")
    if given is not None and not isinstance(given, str):
        raise WorkloadError("prompt is no text; allowed: a string", where=request.where)
    name = str(len(rows))
    content = content_id(name, PRIVATE_PROMPT) if not given else hash_text(f"{PIECE}/{given}")
    output = text([content_id(name, PRIVATE_OUTPUT)], [answer])
    session = request.name("session_id")
    rows.add(name, instant_ns, text([content], [length]), output, session=session, where=request.where)
