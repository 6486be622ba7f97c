"""Clocks of traces: dates given as numbers, and runs of time stamps that start again."""

from __future__ import annotations

import re
from collections.abc import Sequence
from decimal import Decimal

import numpy as np

from workloads.content import I64
from workloads.errors import WorkloadError

# A date of 2001 to 2286 as a number: seconds, milliseconds, microseconds or nanoseconds since 1970.
EPOCHS = (
    (10**9, 10**10, 10**9, "seconds"),
    (10**12, 10**13, 10**6, "milliseconds"),
    (10**15, 10**16, 10**3, "microseconds"),
    (10**18, 10**19, 1, "nanoseconds"),
)


STAMP = re.compile(r"((?:19|20|21)\d\d-\d\d-\d\d[ T]\d\d:\d\d:\d\d(?:\.\d{1,9})?)(?:Z|([+-])(\d\d):?(\d\d))?")
STAMPS_ALLOWED = "YYYY-MM-DD hh:mm:ss with up to nine fractional digits, then nothing, Z or an offset like +00:00"


def iso_ns(stamp: str) -> int | None:
    """Nanoseconds since 1970 of a date and time, in UTC when it names no offset; None when it is none.

    >>> iso_ns("1970-01-01T01:00:00.000000001+01:00"), iso_ns("2023-02-30 00:00:00")
    (1, None)
    """
    match = STAMP.fullmatch(stamp)
    if not match:
        return None
    text, sign, hours, minutes = match.groups()
    try:
        moment = int(np.datetime64(text, "ns").astype(np.int64))
    except ValueError:
        return None
    return moment - (int(f"{sign}{hours}") * 60 + int(f"{sign}{minutes}")) * 60 * 10**9 if sign else moment


def epoch_unit(value: float) -> tuple[int, str] | None:
    """Nanoseconds per unit of a date since 1970, and its name; None for a number that is no such date.

    >>> epoch_unit(1700000000.5), epoch_unit(1700000000500), epoch_unit(3600)
    ((1000000000, 'seconds'), (1000000, 'milliseconds'), None)
    """
    return next(((unit, name) for low, high, unit, name in EPOCHS if low <= value < high), None)


def epoch_ns(values: Sequence[int | float], unit_ns: int) -> I64 | None:
    """Nanoseconds since 1970 of dates in one unit; None when one of them is not a date in that unit."""
    if any((found := epoch_unit(value)) is None or found[0] != unit_ns for value in values):
        return None
    return np.array([exact_ns(value, unit_ns) for value in values], dtype=np.int64)


def exact_ns(value: float, unit_ns: int) -> int:
    """A decimal number of ``unit_ns`` each as whole nanoseconds, ties to even."""
    return value * unit_ns if type(value) is int else int((Decimal(repr(value)) * unit_ns).to_integral_value())


def mixed_units(name: str, value: object, unit: str, where: str) -> WorkloadError:
    """The error for a time stamp that is not in the unit of the ones before."""
    return WorkloadError(
        f"{name} is {value!r}, no date in {unit} like the ones before: the trace mixes time units; convert them first",
        where=where,
    )
