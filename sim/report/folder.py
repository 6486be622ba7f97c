"""Results on disk, whole or not at all: everything is staged beside its destination and renamed at the end."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Self, TextIO

from sim.errors import InputError

OWN_FILES = frozenset(
    {"summary.json", "requests.parquet", "steps.parquet", "scenario.resolved.yaml", "curve.csv", "compare.json"}
)
FIGURES = "figures"
VARIANTS = "variants"
"""Where ``compare`` leaves the results of each variant, in a folder of its own."""


class ResultFolder:
    """A staging folder that becomes ``destination`` on ``commit`` and vanishes without one.

    Entering it creates the staging folder, so an output that cannot be written is an InputError before any work is
    done. A destination that exists keeps the files that are not ours; ours are replaced one rename each, and those of
    an earlier run that this one did not write are removed, so a folder never mixes two runs; ``own_files`` are their
    names.
    """

    def __init__(self, destination: Path, own_files: frozenset[str] = OWN_FILES) -> None:
        self.destination = destination
        self._own_files = own_files
        self.path = destination
        self._made: list[Path] = []

    def __enter__(self) -> Self:
        with _writable(self.destination):
            if self.destination.exists() and not self.destination.is_dir():
                raise InputError("exists and is no folder; give another --out", where=str(self.destination))
            self._made = make_parents(self.destination)
            if self.destination.is_dir():
                _try_writing(self.destination)
            self.path = Path(tempfile.mkdtemp(prefix=f".{self.destination.name}.tmp-", dir=_parent(self.destination)))
            self.path.chmod(0o777 & ~_umask())
        return self

    def commit(self) -> None:
        """Put the staged files in place."""
        with _writable(self.destination):
            if self.destination.is_dir():
                _replace_contents(self.path, self.destination, self._own_files)
                shutil.rmtree(self.path)
            else:
                self.path.replace(self.destination)
        self._made = []

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.path != self.destination:
            shutil.rmtree(self.path, ignore_errors=True)
        remove_if_empty(self._made)


@contextlib.contextmanager
def staged_file(destination: Path) -> Iterator[TextIO]:
    """A text stream that becomes ``destination`` when the block ends well, and leaves nothing behind otherwise."""
    with staged_path(destination) as path, path.open("w", encoding="utf-8", newline="\n") as stream:
        yield stream


@contextlib.contextmanager
def staged_path(destination: Path) -> Iterator[Path]:
    """An empty file that becomes ``destination`` when the block ends well, and leaves nothing behind otherwise."""
    made: list[Path] = []
    staging: Path | None = None
    try:
        with _writable(destination):
            if destination.exists() and not destination.is_file():
                raise InputError("exists and is no regular file; give another name", where=str(destination))
            made = make_parents(destination)
            handle, name = tempfile.mkstemp(prefix=f".{destination.name}.tmp-", dir=_parent(destination), text=True)
            staging = Path(name)
            staging.chmod(0o666 & ~_umask())
        os.close(handle)
        yield staging
        with _writable(destination):
            staging.replace(destination)
        made = []
    finally:
        if staging is not None:
            staging.unlink(missing_ok=True)
        remove_if_empty(made)


def make_parents(path: Path) -> list[Path]:
    """Create the folders above ``path``; returns the ones that were missing, innermost first."""
    missing = [folder for folder in _absolute(path).parents if not folder.exists()]
    for folder in reversed(missing):
        folder.mkdir(exist_ok=True)
    return missing


def remove_if_empty(folders: list[Path]) -> None:
    """Remove folders that hold nothing, in the order given; others stay."""
    for folder in folders:
        with contextlib.suppress(OSError):
            folder.rmdir()


def _replace_contents(staged: Path, destination: Path, own_files: frozenset[str]) -> None:
    for folder in (destination, *sorted((destination / VARIANTS).glob("*/"))):
        _remove_stale(staged / folder.relative_to(destination), folder, own_files)
    for entry in sorted(staged.rglob("*")):
        if entry.is_file():
            target = destination / entry.relative_to(staged)
            target.parent.mkdir(parents=True, exist_ok=True)
            entry.replace(target)
    remove_if_empty([destination / FIGURES, *sorted((destination / VARIANTS).glob("*/")), destination / VARIANTS])


def _remove_stale(staged: Path, folder: Path, own_files: frozenset[str]) -> None:
    """Remove what an earlier run left in ``folder`` and this one did not write."""
    own = [folder / name for name in sorted(own_files)] + sorted((folder / FIGURES).glob("*.png"))
    for path in own:
        if not (staged / path.relative_to(folder)).exists():
            path.unlink(missing_ok=True)


@contextlib.contextmanager
def _writable(path: Path) -> Iterator[None]:
    try:
        yield
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise InputError(f"cannot be written: {reason}; give a place you may write to", where=str(path)) from error


def _try_writing(folder: Path) -> None:
    with tempfile.TemporaryFile(dir=folder):
        pass


def _absolute(path: Path) -> Path:
    return Path(os.path.abspath(path))  # noqa: PTH100  (resolve() would follow links)


def _parent(path: Path) -> Path:
    return _absolute(path).parent


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
