"""What a token is, as far as its keys and values depend on it: its place in a text, and all that precedes it.

A prompt is a list of spans ``(X, n)``, the first n tokens of an endless text X. The identity of a token is a 64-bit mix
of what precedes its span, X, and its offset there; two requests with one prefix have the same identities in it, and a
token of another prefix has another one, as its keys and values have in a model. Nothing is taken over from the
simulator's own hashing.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from workloads.batch import RequestBatch
from workloads.content import I64, U64, hash_text, named_pair, splitmix64

_ROOT = hash_text("gpu_check/start of a text")
_SPAN = hash_text("gpu_check/span")
_REST = hash_text("gpu_check/behind the text")
_SLACK = 16
"""Tokens behind a request's text that asynchronous scheduling may still compute."""


@dataclass(frozen=True, slots=True)
class Text:
    """A request's text: the identity of each token, those of a few more behind it included; its prompt's length."""

    tokens: U64
    prompt_tokens: int


def texts(batch: RequestBatch) -> dict[str, Text]:
    """The text of every request of a batch, by its id."""
    found = {}
    for row, name in enumerate(batch.ids):
        spans = slice(int(batch.span_offsets[row]), int(batch.span_offsets[row + 1]))
        longest = int(batch.prompt_tokens[row] + batch.output_tokens[row]) + _SLACK
        tokens = identities(batch.span_content[spans], batch.span_tokens[spans], int(batch.salt[row]))
        rest = longest - len(tokens)
        if rest > 0:
            private = named_pair(np.arange(rest), np.full(rest, hash_text(name) >> 1), _REST)
            tokens = np.concatenate([tokens, private])
        found[name] = Text(tokens, int(batch.prompt_tokens[row]))
    return found


def identities(content: U64, tokens: I64, salt: int = 0) -> U64:
    """The identities of all tokens of these spans; a salt is a namespace of its own.

    >>> one = identities(np.array([7, 8], np.uint64), np.array([3, 2]))
    >>> other = identities(np.array([7, 9], np.uint64), np.array([3, 2]))
    >>> (one == other).tolist()
    [True, True, True, False, False]
    """
    parts = [np.empty(0, np.uint64)]
    before = splitmix64(np.array([salt ^ _ROOT], np.uint64))
    for name, count in zip(content, tokens.tolist(), strict=True):
        span = splitmix64(before ^ splitmix64(np.array([name], np.uint64)))
        with np.errstate(over="ignore"):
            parts.append(splitmix64(span + np.arange(count, dtype=np.uint64)))
            before = splitmix64(span + np.uint64(count) + np.uint64(_SPAN))
    return np.concatenate(parts)
