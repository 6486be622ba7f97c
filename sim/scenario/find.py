"""Where a scenario lies: the path given, or the name of a shipped one (in the checkout, or inside the wheel)."""

from __future__ import annotations

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
    text = str(path_or_name)
    path = Path(text)
    if path.suffix in SUFFIXES or path.exists():
        return path
    shipped = shipped_scenarios()
    if text in shipped:
        return shipped[text]
    close = nearest(text, shipped)
    hint = f"nearest is {close!r}; " if close else ""
    raise InputError(
        f"no such file, and no shipped scenario of that name; {hint}shipped are {', '.join(shipped) or '(none)'}",
        where=text or "scenario",
    )
