"""Strict reading of a mapping of settings: unknown keys, wrong types and values out of range are errors."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from workloads.errors import WorkloadError, show, unknown


class Settings:
    """The settings under one key path; every question names the key, its bounds and, if optional, its default."""

    def __init__(self, values: Any, where: str, allowed: Sequence[str]) -> None:
        if not isinstance(values, Mapping):
            raise WorkloadError(f"expected a mapping of {', '.join(allowed)}, got {show(values)}", where=where)
        self.values = dict(values)
        self.where = where
        for key in self.values:
            if key not in allowed:
                raise unknown("key", str(key), allowed, where)

    def __contains__(self, key: str) -> bool:
        return self.values.get(key) is not None

    def path(self, key: str) -> str:
        """The dotted path of a key."""
        return f"{self.where}.{key}"

    def error(self, key: str, message: str) -> WorkloadError:
        """An error about the value of ``key``."""
        return WorkloadError(message, where=self.path(key))

    def get(self, key: str, default: Any = None) -> Any:
        """The value as given; a null counts as absent. Without a default the key is required."""
        value = self.values.get(key)
        if value is not None:
            return value
        if default is None:
            raise WorkloadError(f"missing key {key!r}", where=self.where)
        return default

    def integer(self, key: str, low: int, high: int, default: int | None = None) -> int:
        """A whole number from ``low`` to ``high``."""
        value = self.get(key, default)
        if type(value) is not int or not low <= value <= high:
            raise self.error(key, f"{show(value)} given; allowed: whole numbers from {low} to {high}")
        return value

    def number(self, key: str, low: float, high: float, default: float | None = None, *, above: bool = False) -> float:
        """A finite number from ``low`` (``above`` it, if said) to ``high``."""
        value = self.get(key, default)
        fits = type(value) in (int, float) and math.isfinite(value) and low <= value <= high
        if not fits or (above and value == low):
            start = f"above {low:g}" if above else f"from {low:g}"
            raise self.error(key, f"{show(value)} given; allowed: numbers {start} to {high:g}")
        return float(value)

    def choice(self, key: str, allowed: Sequence[str], default: str | None = None) -> str:
        """One of the names ``allowed``."""
        value = self.get(key, default)
        if value not in allowed:
            raise unknown(key, str(value), allowed, self.where)
        return str(value)

    def boolean(self, key: str, *, default: bool) -> bool:
        """True or false."""
        value = self.values.get(key)
        if value is not None and type(value) is not bool:
            raise self.error(key, f"{show(value)} given; allowed: true or false")
        return default if value is None else value

    def texts(self, key: str) -> dict[str, str]:
        """A mapping of strings to non-empty strings; empty when it is not there."""
        given = self.values.get(key)
        fits = isinstance(given, Mapping) and all(
            isinstance(part, str) and part for pair in given.items() for part in pair
        )
        if given is not None and not fits:
            raise self.error(key, f"{show(given)} given; allowed: a mapping of names to names")
        return dict(given or {})

    def text(self, key: str) -> str:
        """A non-empty string."""
        value = self.get(key)
        if not isinstance(value, str) or not value or "\0" in value:
            raise self.error(key, f"{show(value)} given; allowed: a non-empty string")
        return value
