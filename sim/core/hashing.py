"""Content identity: 64-bit names for prefixes of token sequences, without a token in sight.

A request's text is a list of spans ``[X, n]``: the first n tokens of an endless text X. The identity of a prefix that
ends o tokens into a span is ``identity(base, o)`` where ``base`` mixes the identity of all that precedes the span with
X. So one trace serves every block size, and a prefix is named in O(1) once its span is found.

    tokens    0        5                    12
              |-- X=7 -|------ X=9 ----------|
    bases     b0=start(salt)+7   b1=identity(b0, 5)+9
    name of the first 8 tokens = identity(b1, 3)

The lower bits of names and keys count tokens on from a base's own, so that the keys of one text lie side by side in the
prefix cache: blocks are cached, looked up and evicted in runs, and a run then touches few lines of memory.

All 64-bit hash arithmetic of the core lives in this file: unsigned, wrapping, never mixed with signed integers
(Numba would turn that into floats). vLLM's rule it stands for, a hash chained over all preceding blocks:
vllm 0.33.0 v1/core/kv_cache_utils.py:716.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from sim.core._jit import compiled, inlined, wrapping

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_MIX_1 = np.uint64(0xBF58476D1CE4E5B9)
_MIX_2 = np.uint64(0x94D049BB133111EB)
_GROUP = np.uint64(0xD6E8FEB86659FD93)
_ROOT = np.uint64(0x5851F42D4C957F2D)
_NEAR = np.uint64((1 << 24) - 1)
"""The bits that count: as many as a prefix cache has places, at most."""
_S11, _S27, _S30, _S31 = np.uint64(11), np.uint64(27), np.uint64(30), np.uint64(31)
NO_KEY = np.uint64(0)
_ONE = np.uint64(1)
START, END = range(2)


class Spans(NamedTuple):
    """Spans of all live requests, each request's in one run."""

    base: NDArray[np.uint64]  # [S]
    bounds: NDArray[np.int64]  # [S, 2] tokens of the request before the span, and up to its end


@wrapping
def mix(x: np.uint64) -> np.uint64:
    """A bijection of 64-bit words that spreads every input bit (the finaliser of splitmix64)."""
    x = (x ^ (x >> _S30)) * _MIX_1
    x = (x ^ (x >> _S27)) * _MIX_2
    return x ^ (x >> _S31)


@wrapping
def identity(base: np.uint64, offset: np.uint64) -> np.uint64:
    """What stands for the prefix that ends ``offset`` tokens into the span with this base."""
    return mix(base + offset * _GOLDEN)


@wrapping
def block_key(name: np.uint64, group: np.uint64) -> np.uint64:
    """The prefix-cache key of a named prefix in a KV cache group; never :data:`NO_KEY`."""
    apart = (group + _ONE) * _GROUP
    key = _located(mix(name ^ apart), name + apart)
    return key if key != NO_KEY else _ONE


@compiled
def key_of(name: np.uint64, group: np.uint64) -> np.uint64:
    """The same, asked from Python."""
    return block_key(name, group)


@wrapping
def _located(word: np.uint64, position: np.uint64) -> np.uint64:
    """A word with the lower bits of a position in the place of its own."""
    return (word & ~_NEAR) | (position & _NEAR)


@wrapping
def first_word(seed: np.uint64) -> np.uint64:
    """What every draw of a run begins with."""
    return mix(_ROOT ^ seed)


@wrapping
def draw(word: np.uint64, ordinal: np.uint64, outputs: np.uint64) -> np.uint64:
    """A number below 2^53 for the drafts a request makes after some outputs, in whatever order requests are served.

    The chain first word, ordinal, outputs of :func:`identity`, each counted from 1; its upper 53 bits.
    """
    return identity(identity(word, ordinal + _ONE), outputs + _ONE) >> _S11


@inlined
def seek(spans: Spans, cursor: int, tokens: int) -> int:
    """Move a span cursor of a request to the span in which the prefix of ``tokens`` (>= 1) tokens ends.

        spans   | 0 … 99 | 100 … 149 |      the first 100 tokens end in the first, 101 in the second

    >>> spans = Spans(np.zeros(2, np.uint64), np.array([[0, 100], [100, 150]]))
    >>> seek(spans, 0, 100), seek(spans, 0, 101), seek(spans, 1, 1)
    (0, 1, 0)
    """
    while spans.bounds[cursor, END] < tokens:
        cursor += 1
    while spans.bounds[cursor, START] >= tokens:
        cursor -= 1
    return cursor


@wrapping
def _name_within(base: np.uint64, offset: np.uint64) -> np.uint64:
    return _located(identity(base, offset), base + offset)


@inlined
def prefix_name(spans: Spans, cursor: int, tokens: int) -> np.uint64:
    """The name of the prefix of ``tokens`` tokens that ends in the span under the cursor."""
    offset = np.uint64(tokens - spans.bounds[cursor, START])
    return _name_within(spans.base[cursor], offset)


@compiled
def link_spans(
    content: NDArray[np.uint64],
    tokens: NDArray[np.int64],
    offsets: NDArray[np.int64],
    salt: NDArray[np.uint64],
    out: Spans,
    first: int,
) -> None:
    """Chain the spans of a batch of requests into ``out`` from index ``first`` on.

    ``content[S]``, ``tokens[S]``: the spans of all requests; ``offsets[n+1]``: where each request's spans begin;
    ``salt[n]``: a namespace per request (0 for none): vllm 0.33.0 v1/core/kv_cache_utils.py (cache_salt in the keys of
    the first block).
    """
    for i in range(salt.size):
        parent = mix(_ROOT ^ salt[i])
        position = 0
        for s in range(offsets[i], offsets[i + 1]):
            base = mix(parent ^ identity(content[s], _ONE))
            out.base[first + s] = base
            out.bounds[first + s, START] = position
            position += tokens[s]
            out.bounds[first + s, END] = position
            parent = identity(base, np.uint64(tokens[s]))
