"""Units and the few integer operations that every other module shares.

Time is int64 nanoseconds inside, seconds outside; memory is bytes inside, GiB in what people read.
"""

from __future__ import annotations

from typing import Final

from sim.errors import InputError, nearest

GIB: Final = 1 << 30
"""Bytes in one GiB."""

NS_PER_SECOND: Final = 1_000_000_000
"""Nanoseconds in one second."""

# vllm 0.33.0 utils/torch_utils.py:40-66 (the dtypes whose pages are plain K and V content)
_DTYPE_BYTES: Final = {
    "float32": 4,
    "float16": 2,
    "bfloat16": 2,
    "fp8": 1,
    "fp8_e4m3": 1,
    "fp8_e5m2": 1,
    "uint8": 1,
    "int8_per_token_head": 1,
    "fp8_per_token_head": 1,
    "int4_per_token_head": 1,
    "nvfp4": 1,
}

DTYPES: Final = tuple(_DTYPE_BYTES)
"""Names of the storage types that are modelled, as vLLM spells them."""


def cdiv(a: int, b: int) -> int:
    """The smallest integer that is at least ``a / b``.

    >>> [cdiv(n, 16) for n in (0, 1, 16, 17)]
    [0, 1, 1, 2]
    """
    return -(-a // b)


def dtype_bytes(name: str, *, where: str | None = None) -> int:
    """Bytes of one stored element of the dtype ``name``; a packed 4-bit pair counts as one element.

    Raises InputError for a dtype that is unknown or not modelled.

    >>> dtype_bytes("bfloat16"), dtype_bytes("fp8_e4m3")
    (2, 1)
    """
    if name not in _DTYPE_BYTES:
        hint = nearest(name, DTYPES)
        meant = f" (nearest: '{hint}')" if hint else ""
        raise InputError(f"dtype '{name}' is not modelled{meant}; allowed: {', '.join(DTYPES)}", where=where)
    return _DTYPE_BYTES[name]


def format_gib(num_bytes: int) -> str:
    """Bytes as GiB with at most two decimals, rounded as vLLM prints them (vllm 0.33.0 utils/mem_utils.py:30).

    >>> format_gib(40 * GIB), format_gib(GIB + GIB // 3)
    ('40.0', '1.33')
    """
    return f"{round(num_bytes / GIB, 2)}"


def format_bytes(num_bytes: int) -> str:
    """Bytes for people: the largest binary unit that keeps at least one whole unit.

    >>> format_bytes(1310720), format_bytes(512), format_bytes(40 * GIB)
    ('1.25 MiB', '512 B', '40 GiB')
    """
    size, unit = float(num_bytes), "B"
    for larger in ("KiB", "MiB", "GiB", "TiB"):
        if abs(size) < 1024:
            break
        size, unit = size / 1024, larger
    return f"{size:.2f}".rstrip("0").rstrip(".") + f" {unit}"


def seconds_to_ns(seconds: float) -> int:
    """Seconds as whole nanoseconds, rounded to the nearest.

    >>> seconds_to_ns(1.5)
    1500000000
    """
    return round(seconds * NS_PER_SECOND)


def ns_to_seconds(ns: int) -> float:
    """Nanoseconds as seconds.

    >>> ns_to_seconds(2_500_000_000)
    2.5
    """
    return ns / NS_PER_SECOND
