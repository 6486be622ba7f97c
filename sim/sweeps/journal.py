"""Finished points on disk, one line each, so that a sweep that was killed goes on where it stopped."""

from __future__ import annotations

import json
import os
from pathlib import Path
from types import TracebackType
from typing import Self, TextIO

from sim.errors import InputError
from sim.sweeps.point import Row

NAME = "points.jsonl"


class Journal:
    """The file of finished rows in ``folder``, by key.

    A line is written whole and flushed to the disk before its point counts as finished. What a kill leaves of an
    unfinished line is cut off when the file is opened again, and that point is run again.
    """

    def __init__(self, folder: Path) -> None:
        self.path = folder / NAME
        self.rows: dict[str, Row] = {}
        self._stream: TextIO | None = None

    def __enter__(self) -> Self:
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._read()
            self._stream = self.path.open("a", encoding="utf-8", newline="\n")
        except OSError as error:
            raise InputError(
                f"cannot be written: {error.strerror}; give another --out", where=str(self.path)
            ) from error
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._stream is not None:
            self._stream.close()

    def add(self, key: str, row: Row) -> None:
        """Keep a finished row."""
        if self._stream is None:
            raise ValueError("the journal is not open")
        self._stream.write(json.dumps({"key": key, **row}) + "\n")
        self._stream.flush()
        os.fsync(self._stream.fileno())
        self.rows[key] = row

    def _read(self) -> None:
        if not self.path.exists():
            return
        whole = 0
        with self.path.open("rb") as stream:
            for number, line in enumerate(stream, start=1):
                if not line.endswith(b"\n"):
                    break
                try:
                    row = json.loads(line)
                    key = row.pop("key")
                    self.rows[key] = {"values": {}, "error": None, **row}
                except (ValueError, KeyError, AttributeError, TypeError, RecursionError) as error:
                    message = "is no finished point of a sweep; give another --out, or remove the file"
                    raise InputError(message, where=f"{self.path}:{number}") from error
                whole += len(line)
        os.truncate(self.path, whole)
