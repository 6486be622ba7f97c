"""64-bit names of content: which text a span is made of.

Equal names mean equal text, so everything here is a pure function of what the trace says. All unsigned 64-bit
arithmetic of the package lives in this file; it wraps around by intent.
"""

from __future__ import annotations

import hashlib
from functools import lru_cache
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

U64: TypeAlias = NDArray[np.uint64]
I64: TypeAlias = NDArray[np.int64]

MASK = (1 << 64) - 1


def hash_text(text: str) -> int:
    """The 64-bit hash of a text: the same in every process and on every platform."""
    return int.from_bytes(hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest(), "little")


# One namespace per origin of integers: id 7 of a Mooncake file is not content 7 of a native trace.
NATIVE = hash_text("content/native")
MOONCAKE = hash_text("content/mooncake")
PRIVATE_PROMPT = hash_text("content/private prompt")
PRIVATE_OUTPUT = hash_text("content/private output")
PREFIX_POOL = hash_text("content/prefix pool")
SESSION = hash_text("content/session")
BLOCK = hash_text("content/block")
TOKENS = hash_text("content/token ids")
PIECE = hash_text("content/piece")


def splitmix64(values: U64) -> U64:
    """The SplitMix64 finaliser of each value: a bijection on 64-bit words, so different values never collide.

    >>> [hex(v) for v in splitmix64(np.array([0, 1], dtype=np.uint64)).tolist()]
    ['0xe220a8397b1dcdaf', '0x910a2dec89025cc1']
    """
    with np.errstate(over="ignore"):
        z = values + np.uint64(0x9E3779B97F4A7C15)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return z ^ (z >> np.uint64(31))


def named(values: I64 | U64, namespace: int) -> U64:
    """Content of each integer of ``values`` within ``namespace`` (shape kept; negative values count modulo 2^64)."""
    with np.errstate(over="ignore"):
        return splitmix64(values.astype(np.uint64) + np.uint64(namespace))


def named_pair(first: I64 | U64, second: I64 | U64, namespace: int) -> U64:
    """Content of each pair (``first[i]``, ``second[i]``) within ``namespace``."""
    with np.errstate(over="ignore"):
        return splitmix64(named(first, namespace) + second.astype(np.uint64))


@lru_cache(maxsize=1 << 16)
def content_id(value: str | int, namespace: int = NATIVE) -> int:
    """Content of one JSON string or integer. The string "7" and the integer 7 are different contents.

    >>> content_id("system prompt") == content_id("system prompt")
    True
    >>> content_id(7) == int(named(np.array([7]), NATIVE)[0]) != content_id("7")
    True
    """
    if isinstance(value, str) or not -(1 << 63) <= value <= MASK:
        return hash_text(f"{namespace}/{type(value).__name__}/{value}")
    return int(named(np.array([value & MASK], dtype=np.uint64), namespace)[0])


def salt_id(value: str | int) -> int:
    """Namespace of a cache salt; never 0, which means "no salt"."""
    return content_id(value) or 1
