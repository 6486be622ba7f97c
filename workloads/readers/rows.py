"""Requests collected one at a time, for formats whose rows are not plain columns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from workloads.batch import OPEN_LOOP, RequestBatch, from_spans
from workloads.columns import MAX_TOKENS
from workloads.content import I64, TOKENS, U64, hash_text
from workloads.errors import WorkloadError


@dataclass(frozen=True, slots=True)
class Text:
    """Spans: ``content[i]`` with ``tokens[i]`` tokens each, none of them 0."""

    content: U64
    tokens: I64

    def __len__(self) -> int:
        return int(self.tokens.sum())

    def __add__(self, other: Text) -> Text:
        return Text(np.concatenate([self.content, other.content]), np.concatenate([self.tokens, other.tokens]))


def text(content: Sequence[int], tokens: Sequence[int]) -> Text:
    """Spans of these contents and lengths; those of length 0 are left out.

    >>> len(text([1, 2, 3], [4, 0, 5])), text([1, 2, 3], [4, 0, 5]).content.tolist()
    (9, [1, 3])
    """
    lengths = np.array(tokens, dtype=np.int64)
    return Text(np.array(content, dtype=np.uint64)[lengths > 0], lengths[lengths > 0])


def blocks(content: U64, size: int, length: int, rest: int) -> Text | None:
    """A text of ``length`` tokens whose blocks of ``size`` tokens have these contents; None when that cannot be.

    With ``ceil(length / size)`` contents the last one is a partial block; with ``floor`` the tokens after the last full
    block are of the content ``rest``::

        |-- size --|-- size --|- last id -|        |-- size --|-- size --|- rest -|

    >>> ids = np.array([7, 8], dtype=np.uint64)
    >>> blocks(ids, 16, 20, 9).tokens.tolist(), blocks(ids, 16, 35, 9).content.tolist(), blocks(ids, 16, 60, 9)
    ([16, 4], [7, 8, 9], None)
    """
    full, part = divmod(length, size)
    tokens = np.full(len(content), size, dtype=np.int64)
    if len(content) == full + (part > 0):
        if part:
            tokens[-1] = part
        return Text(content, tokens)
    if len(content) != full:
        return None
    return Text(np.append(content, np.uint64(rest)), np.append(tokens, part))


def token_text(ids: list[int], size: int) -> Text:
    """A text of these tokens: each group of ``size`` is named by them, so equal groups are equal content.

    >>> token_text([1, 2, 3, 4, 5], 2).tokens.tolist()
    [2, 2, 1]
    >>> (token_text([1, 2, 9], 2).content == token_text([1, 2, 3], 2).content).tolist()
    [True, False]
    """
    words = np.array(ids, dtype="<u4").tobytes()
    step = 4 * size
    content = [hash_text(f"{TOKENS}/{words[i : i + step].hex()}") for i in range(0, len(words), step)]
    tokens = [size] * (len(content) - 1) + [len(ids) - size * (len(content) - 1)]
    return text(content, tokens)


class Rows:
    """Requests in the order they were added."""

    def __init__(self) -> None:
        self._ids: list[str] = []
        self._sessions: list[str | None] = []
        self._numbers: list[tuple[int, int, int, int, int, int, int]] = []
        self._content: list[U64] = []
        self._tokens: list[I64] = []

    def __len__(self) -> int:
        return len(self._ids)

    def add(
        self,
        name: str,
        arrival_ns: int,
        prompt: Text,
        output: Text,
        *,
        session: str | None = None,
        turn: int = 0,
        think_ns: int = OPEN_LOOP,
        where: str,
    ) -> None:
        """Append a request with a prompt and an output of at least one token; ``where`` is for errors."""
        lengths = len(prompt), len(output)
        if max(lengths) > MAX_TOKENS:
            raise WorkloadError(f"{max(lengths)} tokens in one request; allowed: up to 10^9", where=where)
        spans = len(prompt.tokens), len(prompt.tokens) + len(output.tokens)
        self._ids.append(name)
        self._sessions.append(session)
        self._numbers.append((arrival_ns, *lengths, *spans, turn, think_ns))
        self._content += (prompt.content, output.content)
        self._tokens += (prompt.tokens, output.tokens)

    def batch(self) -> RequestBatch:
        """All requests, sorted by arrival (ties in the order added); at least one must have been added."""
        arrival, prompt, output, prompt_spans, spans, turn, think = np.array(self._numbers, dtype=np.int64).T.copy()
        whole = from_spans(
            self._ids,
            arrival,
            prompt,
            output,
            prompt_spans=prompt_spans,
            span_counts=spans,
            span_content=np.concatenate(self._content),
            span_tokens=np.concatenate(self._tokens),
            sessions=self._sessions,
            turn=turn,
            think_ns=think,
        )
        return whole.take(np.argsort(arrival, kind="stable"))
