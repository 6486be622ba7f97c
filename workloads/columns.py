"""Columns of text or JSON values into checked arrays: fast over whole blocks, exact about the first bad row."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal, InvalidOperation
from typing import Any

import numpy as np
from numpy.typing import NDArray

from workloads.content import I64
from workloads.errors import WorkloadError, show
from workloads.trace_file import RowBlock

MAX_TOKENS = 10**9
MAX_SECONDS = 10**9
TOKENS_ALLOWED = "whole numbers from 1 to 10^9"
SECONDS_ALLOWED = "seconds from 0 to 10^9"
# Below 2^51 ns a double carries a decimal of up to 9 places exactly enough for rint to find its nanosecond.
EXACT_SECONDS = 2_000_000.0
WHOLE = frozenset({int})
REAL = frozenset({int, float})


def token_column(values: Sequence[Any], name: str, block: RowBlock, *, low: int = 1) -> I64:
    """Token counts of a block, each from ``low`` to 10^9; raises `WorkloadError` naming the first bad row."""
    array = whole_numbers(values, name, block)
    bad = np.flatnonzero((array < low) | (array > MAX_TOKENS))
    if len(bad):
        raise bad_value(block, int(bad[0]), name, values[bad[0]], TOKENS_ALLOWED.replace("1", str(low), 1))
    return array


def whole_numbers(values: Sequence[Any], name: str, block: RowBlock) -> I64:
    """64-bit integers of a block of texts or of JSON values."""
    try:
        if plain_integers(values):
            return np.array(list(map(int, values)), dtype=np.int64)
    except (ValueError, OverflowError):
        pass
    bad = next(i for i, value in enumerate(values) if not is_whole(value))
    raise bad_value(block, bad, name, values[bad], "whole numbers")


def typed(values: Sequence[Any], kinds: frozenset[type], name: str, block: RowBlock, allowed: str) -> None:
    """Refuse the first JSON value of another type: a number in quotes is a mistake, ``true`` is not 1."""
    if not set(map(type, values)) <= kinds:
        bad = next(i for i, value in enumerate(values) if type(value) not in kinds)
        raise bad_value(block, bad, name, values[bad], allowed)


def plain_integers(values: Sequence[Any]) -> bool:
    """Whether the values are all JSON integers, or all texts without what only Python reads as a number ("1_000")."""
    kinds = set(map(type, values))
    if kinds <= {str}:
        joined = "".join(values)
        return joined.isascii() and "_" not in joined
    return kinds <= {int}


def is_whole(value: Any) -> bool:
    """Whether one value is what `whole_numbers` takes."""
    if isinstance(value, str):
        value = int(value) if value.strip().lstrip("+-").isdecimal() and value.isascii() and len(value) < 40 else None
    return type(value) is int and abs(value) < 1 << 63


def second_column(values: Sequence[Any], name: str, block: RowBlock) -> I64:
    """Nanoseconds of a block of seconds (texts or JSON numbers), each from 0 to 10^9 s, rounded to the nearest.

    >>> second_column(["0.1", "0.000000001", "123456789.987654321"], "arrival_s", RowBlock("t", [1, 2, 3], [])).tolist()
    [100000000, 1, 123456789987654321]
    """
    seconds = reals(values, name, block)
    with np.errstate(invalid="ignore"):
        bad = np.flatnonzero(~((seconds >= 0) & (seconds <= MAX_SECONDS)))
    if len(bad):
        raise bad_value(block, int(bad[0]), name, values[bad[0]], SECONDS_ALLOWED)
    if len(seconds) and seconds.max() >= EXACT_SECONDS:
        return np.array([exact_ns(value) for value in values], dtype=np.int64)
    return np.rint(seconds * 1e9).astype(np.int64)


def exact_ns(seconds: str | float) -> int:
    """The decimal number of seconds as whole nanoseconds, ties to even."""
    return int((Decimal(str(seconds).strip()) * 10**9).to_integral_value())


def reals(values: Sequence[Any], name: str, block: RowBlock) -> NDArray[np.float64]:
    """Doubles of a block of texts or JSON numbers (booleans and "1_0" are none)."""
    kinds = set(map(type, values))
    joined = "".join(values) if kinds == {str} else ""
    try:
        if kinds <= {int, float} or (joined.isascii() and "_" not in joined and kinds == {str}):
            return np.array(list(map(float, values)), dtype=np.float64)
    except (ValueError, OverflowError):
        pass
    bad = next(i for i, value in enumerate(values) if not is_real(value))
    raise bad_value(block, bad, name, values[bad], "numbers")


def is_real(value: Any) -> bool:
    """Whether one value is what `reals` takes."""
    if isinstance(value, str):
        try:
            return value.isascii() and "_" not in value and abs(Decimal(value.strip())) < Decimal(10) ** 300
        except InvalidOperation:
            return False
    return type(value) is float or (type(value) is int and abs(value) < 10**300)


def bad_value(block: RowBlock, index: int, name: str, value: Any, allowed: str) -> WorkloadError:
    """The error for one value of a block: what it is and what is allowed."""
    given = "is empty" if value == "" else f"is {show(value)}"
    return WorkloadError(f"{name} {given}; allowed: {allowed}", where=block.where(index))


class Order:
    """Checks across blocks that arrivals never go backwards."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.last_ns: int | None = None

    def check(self, arrival_ns: I64, block: RowBlock) -> None:
        """Raise for the first row of a block that arrives before the row above it."""
        if not len(arrival_ns):
            return
        before = np.concatenate(([arrival_ns[0] if self.last_ns is None else self.last_ns], arrival_ns[:-1]))
        back = np.flatnonzero(arrival_ns < before)
        if len(back):
            i = int(back[0])
            raise WorkloadError(
                f"{self.name} goes backwards: {arrival_ns[i] / 1e9:.9g} s after {before[i] / 1e9:.9g} s; "
                "sort the rows by arrival",
                where=block.where(i),
            )
        self.last_ns = int(arrival_ns[-1])
