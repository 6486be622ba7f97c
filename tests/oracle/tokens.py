"""Tokens for the oracle: a token is a function of (content, offset), so equal spans are equal token runs.

A span ``[content, n]`` is the first ``n`` tokens of an endless text named ``content``. The project keys its cache by
content identity; vLLM hashes token ids. Both see the same prefixes as long as this function does not collide, hence
the 31-bit vocabulary.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b

import numpy as np

EOS = 0
"""The one token no span contains: sampled where a request stops before its ``max_tokens``."""

_VOCABULARY = (1 << 31) - 1
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_FACTOR_A = np.uint64(0xBF58476D1CE4E5B9)
_FACTOR_B = np.uint64(0x94D049BB133111EB)


def content_seed(content: str | int) -> int:
    """64-bit seed of a content name; a string and an integer never share one by construction of the digest input."""
    tag = b"i" if isinstance(content, int) else b"s"
    return int.from_bytes(blake2b(tag + str(content).encode(), digest_size=8).digest(), "little")


def span_tokens(content: str | int, count: int) -> list[int]:
    """The first ``count`` tokens of ``content``, each in ``1 .. 2**31 - 2``.

    >>> span_tokens("a", 3) == span_tokens("a", 5)[:3]
    True
    >>> span_tokens("a", 2) == span_tokens("b", 2)
    False
    """
    with np.errstate(over="ignore"):
        mixed = np.arange(1, count + 1, dtype=np.uint64) * _GOLDEN + np.uint64(content_seed(content))
        mixed = (mixed ^ (mixed >> np.uint64(30))) * _FACTOR_A
        mixed = (mixed ^ (mixed >> np.uint64(27))) * _FACTOR_B
    mixed ^= mixed >> np.uint64(31)
    tokens: list[int] = (mixed % np.uint64(_VOCABULARY - 1) + np.uint64(1)).tolist()
    return tokens


def spans_tokens(spans: Sequence[Sequence[str | int]]) -> list[int]:
    """The tokens of consecutive spans ``[[content, tokens], ...]``."""
    tokens: list[int] = []
    for content, count in spans:
        tokens += span_tokens(content, int(count))
    return tokens
