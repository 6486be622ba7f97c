"""From flags to overrides of a scenario, and to the folders results go to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from sim.errors import InputError
from sim.scenario.overrides import Override, parse_override
from sim.scenario.strict_yaml import parse_value

_SECTION = {
    "gpu": "hardware",
    "usage": "hardware",
    "num_gpu_blocks_override": "memory",
    "kv_cache_memory_bytes": "memory",
    "available_kv_cache_memory_gib": "memory",
}
MEMORY_FLAGS = tuple(f"--{key.replace('_', '-')}" for key, section in _SECTION.items() if section == "memory")


def plan_overrides(flags: Mapping[str, Any]) -> list[Override]:
    """The overrides that ``plan``'s flags (by parameter name; None = not given) stand for."""
    given = {name: value for name, value in flags.items() if value is not None}
    memory = [name for name in given if _SECTION.get(name) == "memory"]
    if len(memory) > 1:
        names = " and ".join(f"--{name.replace('_', '-')}" for name in memory)
        raise InputError("only one of the memory flags can be given", where=names)
    return [
        Override((_SECTION.get(name, "engine"), name), _value(value, _place(name, value)), _place(name, value))
        for name, value in given.items()
    ]


def set_overrides(items: Sequence[str]) -> list[Override]:
    """The overrides of ``--set``; a trace named there may lie in the current folder as well as beside the scenario."""
    overrides = [parse_override(item) for item in items]
    return [_from_here(override) for override in overrides]


def destinations_of(names: Sequence[str], out: Path | None, suffix: str = "") -> list[Path]:
    """A results folder per scenario: ``out`` itself for a single one, one of its name below it for several."""
    if len(names) == 1 and out is not None:
        return [out]
    twice = next((name for i, name in enumerate(names) if name in names[:i]), None)
    if twice is not None:
        raise InputError(f"two scenarios are called {twice!r}; give one another name (--set name=… works for one run)")
    return [(out or Path("results")) / f"{name}{suffix}" for name in names]


def _from_here(override: Override) -> Override:
    if override.path != ("workload", "trace") or not isinstance(override.value, str):
        return override
    here = Path(override.value)
    return Override(override.path, str(here.absolute()) if here.exists() else override.value, override.place)


def _value(value: Any, place: str) -> Any:
    if not isinstance(value, str):
        return value
    return None if value.lower() == "none" else parse_value(value, place)


def _place(name: str, value: Any) -> str:
    return f"--{'no-' if value is False else ''}{name.replace('_', '-')}"
