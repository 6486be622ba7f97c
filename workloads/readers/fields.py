"""One JSON object of a trace, asked for typed values: every answer is checked, every error says where."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from workloads.clock import exact_ns
from workloads.columns import MAX_SECONDS, MAX_TOKENS
from workloads.errors import WorkloadError, show

MAX_NAME = 1024


class Fields:
    """The values of one object; ``where`` is its ``file:line`` or ``file: key path``."""

    def __init__(self, values: Any, where: str) -> None:
        if not isinstance(values, dict):
            raise WorkloadError(f"expected a JSON object, got {show(values)}", where=where)
        self.values: dict[str, Any] = values
        self.where = where

    def __contains__(self, key: str) -> bool:
        return self.values.get(key) is not None

    def bad(self, key: str, value: Any, allowed: str) -> WorkloadError:
        """The error for one value."""
        given = "is missing" if value is None and key not in self.values else f"is {show(value)}"
        return WorkloadError(f"{key} {given}; allowed: {allowed}", where=self.where)

    def first(self, keys: Sequence[str]) -> str:
        """The first of ``keys`` that is there; the first of all when none is."""
        return next((key for key in keys if key in self), keys[0])

    def integer(self, key: str, low: int = 0, high: int = MAX_TOKENS, default: int | None = None) -> int:
        """A whole number from ``low`` to ``high``."""
        value = self.values.get(key)
        value = default if value is None else value
        if type(value) is not int or not low <= value <= high:
            raise self.bad(key, value, f"whole numbers from {low} to {high}")
        return value

    def time_ns(self, key: str, unit_ns: int, default: int | None = None) -> int:
        """Nanoseconds of a number of ``unit_ns`` each, from 0 to 10^9 s after 0 (dates of this century included)."""
        value: Any = self.values.get(key)
        if value is None and default is not None:
            return default
        if type(value) not in (int, float) or not 0 <= value * unit_ns <= 8 * MAX_SECONDS * 10**9:
            raise self.bad(key, value, f"numbers from 0 to {8 * MAX_SECONDS * 10**9 // unit_ns}")
        return exact_ns(value, unit_ns)

    def name(self, key: str) -> str | None:
        """A string or whole number that names something, as a string; None when it is absent."""
        value = self.values.get(key)
        if value is None or (type(value) is int and abs(value) < 1 << 64):
            return None if value is None else str(value)
        if type(value) is not str or not value or len(value) > MAX_NAME or not value.isprintable():
            raise self.bad(key, value, f"a string of 1 to {MAX_NAME} printable characters")
        return value

    def text(self, key: str) -> str:
        """A string of any length, possibly empty."""
        value = self.values.get(key)
        if type(value) is not str:
            raise self.bad(key, value, "a string")
        return value

    def items(self, key: str) -> list[Any]:
        """A list; an absent one is empty."""
        value = self.values.get(key)
        if value is None and key not in self.values:
            return []
        if type(value) is not list:
            raise self.bad(key, value, "a list")
        return value

    def integers(self, key: str, low: int = 0, high: int = (1 << 64) - 1) -> list[int]:
        """A list of whole numbers from ``low`` to ``high``."""
        values = self.items(key)
        if not (set(map(type, values)) <= {int} and (not values or (min(values) >= low and max(values) <= high))):
            wrong = next(value for value in values if type(value) is not int or not low <= value <= high)
            raise self.bad(key, wrong, f"a list of whole numbers from {low} to {high}")
        return values

    def inner(self, key: str) -> Fields:
        """The object under ``key``."""
        return Fields(self.values.get(key), f"{self.where}: {key}")

    def objects(self, key: str) -> Iterator[Fields]:
        """The objects of the list under ``key``."""
        for position, value in enumerate(self.items(key)):
            yield Fields(value, f"{self.where}: {key}[{position}]")
