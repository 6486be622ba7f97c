"""Reading an inline model: keys, integers and numbers, each error with its key path."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from sim.errors import InputError, nearest

_LARGEST: Final = 1 << 48
"""Above any size that means something; keeps a slip of the keyboard from becoming a number of 400 digits."""


def check_keys(mapping: Mapping[str, Any], allowed: tuple[str, ...], where: str) -> None:
    """Raise InputError for a key that is not allowed, with the nearest that is."""
    for key in mapping:
        if key not in allowed:
            hint = nearest(str(key), allowed)
            meant = f" (nearest: '{hint}')" if hint else ""
            raise InputError(f"unknown key '{key}'{meant}; allowed: {', '.join(allowed)}", where=where)


def integer(mapping: Mapping[str, Any], key: str, where: str, *, default: int | None = None, least: int = 1) -> int:
    """The integer behind ``key``; raises InputError for anything else, or one below ``least``."""
    value = mapping.get(key, default)
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= _LARGEST:
        raise InputError(f"must be an integer of at least {least}, got {value!r}", where=f"{where}.{key}")
    return value


def number(mapping: Mapping[str, Any], key: str, where: str) -> float:
    """Bytes per weight behind ``key``, 2 unless given."""
    value = mapping.get(key, 2.0)
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= 16:
        raise InputError(f"must be a number of bytes above 0 and at most 16, got {value!r}", where=f"{where}.{key}")
    return float(value)
