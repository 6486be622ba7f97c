"""OpenTelemetry GenAI spans: OTLP exports (``resourceSpans``, one JSON or JSON Lines), or session files with ``spans``.

A span is a request when it has token counts (``gen_ai.usage.input_tokens`` or the older ``prompt_tokens``, and likewise
for the output) or messages. Counts come first; messages, where tokens can be counted (`workloads.readers.tokens`), say
which content prompts share. vLLM's own span ``llm_request`` starts when the request arrived; it has no messages.

Spans of one conversation, or else of one trace, are a session; a span that starts before the one before it has ended
runs beside it, any other waits for it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from workloads.batch import RequestBatch
from workloads.clock import STAMPS_ALLOWED, iso_ns
from workloads.content import PRIVATE_OUTPUT, PRIVATE_PROMPT, content_id
from workloads.errors import WorkloadError
from workloads.options import ReadOptions
from workloads.readers.fields import Fields
from workloads.readers.json_rows import located
from workloads.readers.rows import Rows, Text, text
from workloads.readers.tokens import Tokens
from workloads.readers.tracelab import continued
from workloads.readers.turns import Turns
from workloads.trace_file import TraceFile
from workloads.workload import Tally

INPUT = ("gen_ai.usage.input_tokens", "gen_ai.usage.prompt_tokens")
OUTPUT = ("gen_ai.usage.output_tokens", "gen_ai.usage.completion_tokens")
SESSION = ("gen_ai.conversation.id", "session.id", "exgentic.session.id")
ASKED = ("gen_ai.input.messages", "gen_ai.prompt")
SAID = ("gen_ai.output.messages", "gen_ai.output.text", "gen_ai.completion")
START = ("startTimeUnixNano", "start_time_unix_nano", "start_time")
END = ("endTimeUnixNano", "end_time_unix_nano", "end_time")


@dataclass(frozen=True, slots=True)
class Span:
    """One span that is a request."""

    start_ns: int
    end_ns: int
    fields: Fields
    attributes: Fields


def read(trace: TraceFile, tally: Tally, options: ReadOptions) -> Iterator[RequestBatch]:
    """The requests among the spans, by their start; other spans, and requests that failed, are counted as skipped."""
    tokens = Tokens(options, trace.label)
    found = [span for fields in spans(trace, tally) if (span := request_span(fields, tally)) is not None]
    rows, turns = Rows(), Turns()
    for span in sorted(found, key=lambda span: span.start_ns):
        prompt, output = sides(span, tokens, len(rows))
        if not len(prompt) or not len(output):
            tally.skip("zero_output_tokens" if len(prompt) else "zero_prompt_tokens", 1)
            continue
        session = span.attributes.name(span.attributes.first(SESSION)) or trace_of(span.fields)
        turn, think = turns.next(session, span.start_ns, span.end_ns)
        name = span.fields.name(span.fields.first(("spanId", "span_id"))) or str(len(rows))
        rows.add(
            name, span.start_ns, prompt, output, session=session, turn=turn, think_ns=think, where=span.fields.where
        )
    tally.notes["token_counts"] = tokens.how
    if len(rows):
        yield rows.batch()


def spans(trace: TraceFile, tally: Tally) -> Iterator[Fields]:
    """Every span of the file."""
    one = trace.expected_lines == 1 or not trace.first_line[1].endswith("}")
    roots = iter([Fields(trace.document(), trace.label)]) if one else located(trace, tally)
    for root in roots:
        if "resourceSpans" not in root:
            yield from root.objects("spans")
        for resource in root.objects("resourceSpans"):
            for scope in resource.objects(resource.first(("scopeSpans", "instrumentationLibrarySpans"))):
                yield from scope.objects("spans")


def request_span(fields: Fields, tally: Tally) -> Span | None:
    """The request of a span; None, counted, when it is none."""
    attributes = Fields(flat(fields), fields.where)
    if not any(key in attributes for key in (*INPUT, *ASKED)):
        tally.skip("spans_of_something_else", 1)
        return None
    start = moment(fields, START)
    end = moment(fields, END) if any(key in fields for key in END) else start
    return Span(start, max(start, end), fields, attributes)


def flat(fields: Fields) -> dict[str, Any]:
    """The attributes of a span by name, from a mapping or from OTLP's list of keys and typed values."""
    given = fields.values.get("attributes")
    if isinstance(given, dict):
        return given
    found: dict[str, Any] = {}
    for entry in fields.objects("attributes"):
        value = entry.inner("value").values
        kind, inner = next(iter(value.items()), ("", None))
        whole = (
            kind == "intValue" and isinstance(inner, str) and inner.isascii() and inner.isdecimal() and len(inner) < 20
        )
        found[str(entry.name("key"))] = int(str(inner)) if whole else inner
    return found


def moment(fields: Fields, keys: tuple[str, ...]) -> int:
    """Nanoseconds since 1970 of the first of ``keys``: a number or digits of nanoseconds, or an ISO date and time."""
    key = fields.first(keys)
    value = fields.values.get(key)
    if type(value) is int and 0 <= value < 1 << 63:
        return value
    if isinstance(value, str) and value.isascii() and value.isdecimal() and len(value) < 20:
        return int(value)
    stamp = iso_ns(value) if isinstance(value, str) else None
    if stamp is None:
        raise fields.bad(key, value, STAMPS_ALLOWED)
    return stamp


def trace_of(fields: Fields) -> str:
    """The trace a span belongs to."""
    return fields.name(fields.first(("traceId", "trace_id"))) or "trace"


def sides(span: Span, tokens: Tokens, number: int) -> tuple[Text, Text]:
    """Prompt and output of a span."""
    prompt = side(span.attributes, INPUT, ASKED, tokens, content_id(number, PRIVATE_PROMPT))
    return prompt, side(span.attributes, OUTPUT, SAID, tokens, content_id(number, PRIVATE_OUTPUT))


def side(attributes: Fields, counts: tuple[str, ...], texts: tuple[str, ...], tokens: Tokens, private: int) -> Text:
    """One side of a request: as long as counted, and of the content its messages have where they can be counted."""
    count, said = attributes.first(counts), attributes.first(texts)
    if count not in attributes:
        return said_text(attributes, said, tokens)
    length = attributes.integer(count)
    if not tokens.known or said not in attributes or not length:
        return text([private], [length])
    known = said_text(attributes, said, tokens)
    return (
        continued(known, min(length, len(known)), length, str(private)) if len(known) > 1 else text([private], [length])
    )


def said_text(attributes: Fields, key: str, tokens: Tokens) -> Text:
    """The text of messages: a list, a JSON string of one, or plain text; empty when there are none."""
    value = attributes.values.get(key)
    if isinstance(value, str) and value.lstrip().startswith("["):
        try:
            value = json.loads(value)
        except (ValueError, RecursionError):
            raise WorkloadError(f"{key} is no JSON list of messages", where=attributes.where) from None
    whole = text([], [])
    for message in value if isinstance(value, list) else [value] if value else []:
        whole = whole + tokens.of(spoken(message))
    return whole


def spoken(message: Any) -> str:
    """What a message says: itself, its content, or the JSON of it where that is no text."""
    content = message.get("content", message.get("parts", "")) if isinstance(message, dict) else message
    return content if isinstance(content, str) else json.dumps(content, sort_keys=True)
