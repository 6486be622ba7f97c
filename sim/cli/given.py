"""From flags to overrides of a scenario, and to the folders results go to."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from sim.errors import InputError
from sim.scenario.overrides import Override, parse_override


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
