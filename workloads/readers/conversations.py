"""Texts: ShareGPT-like conversations, vLLM's ``custom`` dataset, logs of prompts and answers (LMCache, LMBenchmark).

Tokens are counted by a tokenizer or estimated (`workloads.readers.tokens`), without a chat template. A conversation is
a session: the prompt of a turn is every message before it, so it begins with the last prompt and its answer. vLLM's own
``sharegpt`` benchmark takes only the first exchange, and prunes; this reader does neither. Conversations have no times:
their turns wait for answers, ``workload.turn_think_s`` after them, and ``workload.arrival`` starts them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from workloads.batch import OPEN_LOOP, RequestBatch
from workloads.clock import epoch_unit, exact_ns
from workloads.content import PRIVATE_OUTPUT, content_id
from workloads.errors import WorkloadError
from workloads.options import ReadOptions
from workloads.readers.fields import Fields
from workloads.readers.json_rows import located
from workloads.readers.rows import Rows, Text, text
from workloads.readers.tokens import Tokens
from workloads.trace_file import TraceFile
from workloads.workload import Tally

ANSWERS = frozenset({"gpt", "assistant", "chatgpt", "bing", "bard", "model"})
UNPLACED = "conversations and data sets have no arrival times"
SECOND = 10**9


@dataclass(frozen=True, slots=True)
class Source:
    """What every reader of texts here needs."""

    rows: Rows
    tokens: Tokens
    tally: Tally
    options: ReadOptions


def read(trace: TraceFile, tally: Tally, options: ReadOptions) -> Iterator[RequestBatch]:
    """The requests of a JSON list or of JSON Lines of any of these shapes."""
    source = Source(Rows(), Tokens(options, trace.label), tally, options)
    for number, entry in enumerate(entries(trace, tally)):
        if "conversations" in entry or "messages" in entry:
            conversation(source, entry, number)
        else:
            exchange(source, entry, number)
    tally.notes["token_counts"] = source.tokens.how
    if len(source.rows):
        yield source.rows.batch()


def entries(trace: TraceFile, tally: Tally) -> Iterator[Fields]:
    """The objects of a JSON list, or of JSON Lines."""
    if not trace.first_line[1].startswith("["):
        yield from located(trace, tally)
        return
    found = trace.document()
    for position, entry in enumerate(found):
        yield Fields(entry, f"{trace.label}: [{position}]")


def conversation(source: Source, entry: Fields, number: int) -> None:
    """Append a turn for every answer of a conversation; one without an answer is left out and counted."""
    session = entry.name("id") or str(number)
    context, turn, asked = text([], []), 0, False
    for message in entry.objects(entry.first(("conversations", "messages"))):
        role = message.text(message.first(("from", "role")))
        said = source.tokens.of(message.text(message.first(("value", "content"))))
        if role in ANSWERS and asked and len(said) and len(context):
            source.rows.add(
                f"{number}.{turn}",
                0,
                context,
                said,
                session=f"{number}/{session}",
                turn=turn,
                think_ns=exact_ns(source.options.turn_think_s, SECOND) if turn else OPEN_LOOP,
                where=message.where,
            )
            source.tally.closed_only |= turn > 0
            turn += 1
        asked = role not in ANSWERS
        context = context + said
    source.tally.unplaced = UNPLACED
    source.tally.skip("conversation_without_an_answer", int(turn == 0))


def exchange(source: Source, entry: Fields, number: int) -> None:
    """Append one prompt; the answer is a text, or a number of tokens."""
    prompt = source.tokens.of(entry.text(entry.first(("input", "prompt"))))
    output = answer_of(source, entry, number)
    if not len(prompt) or not len(output):
        source.tally.skip("zero_output_tokens" if len(prompt) else "zero_prompt_tokens", 1)
        return
    arrival = 0
    if "timestamp" in entry:
        arrival = date_ns(entry)
    else:
        source.tally.unplaced = UNPLACED
    source.rows.add(str(number), arrival, prompt, output, session=entry.name("session_id"), where=entry.where)


def answer_of(source: Source, entry: Fields, number: int) -> Text:
    """The answer to a prompt."""
    key = entry.first(("output_tokens", "output_length"))
    if key in entry:
        return text([content_id(number, PRIVATE_OUTPUT)], [entry.integer(key)])
    return source.tokens.of(entry.text("output"))


def date_ns(entry: Fields) -> int:
    """Nanoseconds since 1970 of a date given as a number in the unit its size tells."""
    value = entry.values["timestamp"]
    unit = epoch_unit(value) if type(value) in (int, float) else None
    if unit is None:
        raise WorkloadError(f"timestamp is {value!r}; allowed: a date as a number since 1970", where=entry.where)
    return exact_ns(value, unit[0])
