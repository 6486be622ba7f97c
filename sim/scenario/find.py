"""Where a scenario lies: the path given, or the name of a shipped one (in the checkout, or inside the wheel)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from sim.errors import InputError, nearest

SUFFIXES = (".yaml", ".yml")
_PACKAGE = Path(__file__).resolve().parent.parent


def shipped_folder() -> Path | None:
    """The folder of shipped scenarios: ``sim/_scenarios`` after an install, ``scenarios`` in a checkout."""
    for folder in (_PACKAGE / "_scenarios", _PACKAGE.parent / "scenarios"):
        if folder.is_dir() and any(folder.glob("*.yaml")):
            return folder
    return None


def shipped_scenarios() -> dict[str, Path]:
    """Name to path of every shipped scenario, sorted by name."""
    folder = shipped_folder()
    return {path.stem: path for path in sorted(folder.glob("*.yaml"))} if folder else {}


def find_scenario(path_or_name: str | Path) -> Path:
    """The file meant by ``path_or_name``; InputError names the shipped scenarios when there is none."""
    return find_shipped(str(path_or_name), shipped_scenarios, "scenario")


def find_shipped(path_or_name: str, shipped: Callable[[], dict[str, Path]], what: str) -> Path:
    """A path as it is given, or what is ``shipped`` under that name; InputError says what is, and the nearest."""
    path = Path(path_or_name)
    if path.suffix in SUFFIXES or path.exists():
        return path
    known = shipped()
    if path_or_name in known:
        return known[path_or_name]
    close = nearest(path_or_name, known)
    hint = f"nearest is {close!r}; " if close else ""
    raise InputError(
        f"no such file, and no shipped {what} of that name; {hint}shipped are {', '.join(known) or '(none)'}",
        where=path_or_name or what,
    )
