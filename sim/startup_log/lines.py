"""The lines of a pasted log as vLLM printed them: colours, envelopes and line breaks of other programs taken off."""

from __future__ import annotations

import html
import json
import re
from bisect import bisect_right
from collections.abc import Iterator
from typing import Final

_COLOURS: Final = re.compile(
    r"\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)|\x1b\[[0-9;?]*[A-Za-z]|(?:\^\[|\\x1b|\\u001b|\\033)?\[\d*(?:;\d+)*m"
)
"""Escape sequences, also those a paste has made visible (``^[[0m``, ``\\x1b[0m``) or lost the first sign of."""

_CONTROL: Final = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\ufeff\u200b]")
_ENTITY: Final = re.compile(r"&(?:#\d+|#x[0-9a-fA-F]+|quot|amp|lt|gt|apos);|<br ?/?>")
_TEXT_KEYS: Final = ("log", "message", "msg", "line", "MESSAGE", "text", "body", "textPayload")
"""Where collectors of logs put the line, when they write JSON."""

_PREFIX: Final = re.compile(r"^\S+ +\| ?|^> ?")
_STARTS: Final = re.compile(r"(?=(?:\([\w ]+pid=\d+\) ?)*\b(?:INFO|WARNING|ERROR|DEBUG) \d\d-\d\d )|(?=\bValueError: )")
"""Where a line of vLLM's begins, in a text whose line breaks are gone."""


def clean_lines(text: str) -> Iterator[tuple[int, str]]:
    r"""Numbers (from 1) and texts of the lines that hold something; a shell's continuations are one line.

    >>> list(clean_lines('\x1b[32mINFO\x1b[0m a\n\n{"log": "b"}\nc \\\n  d\n'))
    [(1, 'INFO a'), (3, 'b'), (4, 'c d')]
    """
    pending, first = "", 0
    for number, raw in enumerate(text.splitlines(), start=1):
        line = _clean(raw)
        if line.endswith("\\"):
            pending, first = f"{pending}{line[:-1].rstrip()} ", first or number
            continue
        if pending:
            yield first, pending + line
            pending, first = "", 0
        elif line:
            yield number, line
    if pending.strip():
        yield first, pending.strip()


def _clean(raw: str) -> str:
    line = _CONTROL.sub("", _COLOURS.sub("", raw)).replace("\u00a0", " ").strip()
    if line.startswith("{") and line.rstrip(",").endswith("}"):
        line = _from_json(line.rstrip(","))
    return html.unescape(_ENTITY.sub(_entity, line)).strip() if "&" in line or "<br" in line else line


def _entity(found: re.Match[str]) -> str:
    return " " if found[0].startswith("<") else found[0]


def _from_json(line: str) -> str:
    """The text inside a record of a log collector; ``line`` itself where it is none."""
    try:
        record = json.loads(line)
    except (ValueError, RecursionError):
        return line
    found = next((record[key] for key in _TEXT_KEYS if isinstance(record.get(key), str)), None)
    return line if found is None else _COLOURS.sub("", found).strip()


def unbroken_lines(text: str, *, joint: str) -> Iterator[tuple[int, str]]:
    r"""The lines of a log that a narrow terminal or a form has broken, put together with ``joint`` in between.

    >>> list(unbroken_lines("INFO 10-15 09:12:41 a\nb INFO 10-15 09:12:42 c", joint=""))
    [(1, 'INFO 10-15 09:12:41 ab'), (2, 'INFO 10-15 09:12:42 c')]
    """
    pieces, starts, numbers, length = [], [], [], 0
    for number, line in enumerate(text.splitlines(), start=1):
        bare = _PREFIX.sub("", _CONTROL.sub("", _COLOURS.sub("", line)).replace("\u00a0", " "))
        pieces.append((bare.strip() if joint else bare) + joint)
        starts.append(length)
        numbers.append(number)
        length += len(pieces[-1])
    at = 0
    for piece in _STARTS.split("".join(pieces)):
        if piece.strip():
            yield numbers[bisect_right(starts, at) - 1], piece.strip()
        at += len(piece)
