"""Errors about a workload, worded for the person who wrote it."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches


class WorkloadError(Exception):
    """A trace or a workload setting cannot be used as given.

    ``where`` is ``file:line`` or a dotted key path, ``message`` says what was given and what is allowed or what to
    do, ``exit_code`` is what a command line ends with.

    >>> str(WorkloadError("prompt_tokens is -3; allowed: 1 to 10^9", where="trace.csv:7"))
    'trace.csv:7: prompt_tokens is -3; allowed: 1 to 10^9'
    """

    exit_code = 2

    def __init__(self, message: str, *, where: str | None = None) -> None:
        self.message = " ".join(message.split())
        self.where = where
        super().__init__(str(self))

    def __str__(self) -> str:
        return f"{self.where}: {self.message}" if self.where else self.message


def nearest(word: str, allowed: Iterable[str]) -> str | None:
    """The allowed spelling closest to ``word``, or None when nothing is close.

    >>> nearest("promt_tokens", ["prompt_tokens", "output_tokens"])
    'prompt_tokens'
    """
    matches = get_close_matches(word, list(allowed), n=1, cutoff=0.6)
    return matches[0] if matches else None


def unknown(kind: str, word: str, allowed: Iterable[str], where: str) -> WorkloadError:
    """The error for a name that is not one of ``allowed``, with the nearest spelling when there is one.

    >>> str(unknown("key", "sesion", ["id", "session"], "t.jsonl:1"))
    "t.jsonl:1: unknown key 'sesion' (did you mean 'session'?); allowed: id, session"
    """
    names = list(allowed)
    close = nearest(word, names)
    hint = f" (did you mean {close!r}?)" if close else ""
    return WorkloadError(f"unknown {kind} {show(word)}{hint}; allowed: {', '.join(names)}", where=where)


def show(value: object, width: int = 60) -> str:
    """``repr`` of what the user gave, cut to ``width`` characters so that a message stays one line.

    >>> show("x" * 100, 12)
    "'xxxxxxxx..."
    """
    text = repr(value[: 2 * width] if isinstance(value, (str, bytes)) else value)
    return text if len(text) <= width else text[: width - 3] + "..."
