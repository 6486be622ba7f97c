"""A trace file as numbered lines of text, read as a stream and refused early when it is no trace."""

from __future__ import annotations

import hashlib
import json
import stat
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NoReturn

from workloads.errors import WorkloadError, nearest
from workloads.inflate import GZIP_MAGIC, PIECE, inflate
from workloads.parquet import ParquetFile, is_parquet
from workloads.workload import Tally

MAX_LINE_BYTES = 16 << 20
HEAD_BYTES = 1 << 16
HASHED_BYTES = 256 << 20
COUNTED_BYTES = 64 << 20
DOCUMENT_BYTES = 1 << 30

FOREIGN = (
    (b"version https://git-lfs", "is a git-LFS pointer, not the trace itself; fetch it with `git lfs pull`"),
    (b"PK\x03\x04", "is a zip archive; unpack it first"),
    (b"\x28\xb5\x2f\xfd", "is compressed with zstd; decompress it first (plain text and gzip are read)"),
    (b"BZh", "is compressed with bzip2; decompress it first (plain text and gzip are read)"),
    (b"\xfd7zXZ", "is compressed with xz; decompress it first (plain text and gzip are read)"),
    (b"\xff\xfe", "is UTF-16 text; save it as UTF-8"),
    (b"\xfe\xff", "is UTF-16 text; save it as UTF-8"),
)


def no_constant(name: str) -> NoReturn:
    """Refuse NaN and Infinity, which Python would take."""
    raise ValueError(f"{name} is not JSON")


DECODER = json.JSONDecoder(parse_constant=no_constant)


@dataclass(frozen=True, slots=True)
class RowBlock:
    """Consecutive non-blank lines of a file and their line numbers, counted from 1."""

    label: str
    numbers: Sequence[int]
    lines: list[str]

    def where(self, index: int) -> str:
        """``file:line`` of one line of the block."""
        return f"{self.label}:{self.numbers[index]}"


class TraceFile:
    """An existing trace file; ``label`` is what messages call it. Raises `WorkloadError` when it can be no trace."""

    def __init__(self, path: Path, label: str) -> None:
        self.path = path
        self.label = label
        self.size = file_size(path, label)
        self.parquet = is_parquet(path)
        self.gzipped = self._starts_with_gzip()
        self.head = b"" if self.parquet else self._read_head()
        refuse_foreign(self.head, label)

    @cached_property
    def head_text(self) -> str:
        """The first 64 KiB."""
        return decode(self.head, self.label, 1, partial=True)

    @cached_property
    def first_line(self) -> tuple[int, str]:
        """Number and text of the first line that is not blank (cut at 64 KiB)."""
        for number, line in enumerate(self.head_text.split("\n"), 1):
            if line.strip():
                return number, line.strip()
        raise WorkloadError("the trace is empty: it has no line with text", where=self.label)

    @cached_property
    def sha256(self) -> str | None:
        """SHA-256 of the file as it lies on disk; None above 256 MiB, where hashing would cost as much as reading."""
        if self.size > HASHED_BYTES:
            return None
        with self.path.open("rb") as stream:
            return hashlib.file_digest(stream, "sha256").hexdigest()

    @cached_property
    def expected_lines(self) -> int | None:
        """How many lines a small file, or rows a Parquet file, has; None where counting would take time."""
        if self.parquet:
            return ParquetFile(self.path, self.label).rows
        if self.size > (COUNTED_BYTES // 16 if self.gzipped else COUNTED_BYTES):
            return None
        last = b"\n"
        count = 0
        for piece in self._pieces(PIECE):
            count += piece.count(b"\n")
            last = piece[-1:]
        return count + (last != b"\n")

    def document(self) -> Any:
        """The whole file as one JSON value; raises `WorkloadError` when it is none, or larger than 1 GiB."""
        pieces = bytearray()
        for piece in self._pieces(PIECE):
            pieces += piece
            if len(pieces) > DOCUMENT_BYTES:
                raise WorkloadError("the file is one JSON value of over 1 GiB; cut it in parts", where=self.label)
        text = decode(bytes(pieces), self.label, 1)
        try:
            return DECODER.decode(text)
        except (ValueError, RecursionError) as error:
            line = getattr(error, "lineno", 1)
            reason = error.msg if isinstance(error, json.JSONDecodeError) else "nested too deeply or not a number"
            raise WorkloadError(
                f"not valid JSON: {reason} at column {getattr(error, 'colno', 1)}; is the file cut here?",
                where=f"{self.label}:{line}",
            ) from None

    def rows(self, tally: Tally, *, header: bool = False) -> Iterator[RowBlock]:
        """The non-blank lines, without the first one if it is a ``header``, and no more than ``tally`` still wants."""
        skip = self.first_line[0] if header else 0
        for first, found in self._lines():
            lines = found
            numbers: Sequence[int] = range(first, first + len(lines))
            if first <= skip or not all(map(str.strip, lines)):
                kept = [i for i, line in enumerate(lines) if line.strip() and first + i > skip]
                numbers, lines = [first + i for i in kept], [lines[i] for i in kept]
            start = 0
            while start < len(lines):
                left = tally.left
                if left is not None and left <= 0:
                    return
                stop = len(lines) if left is None else min(len(lines), start + left)
                yield RowBlock(self.label, numbers[start:stop], lines[start:stop])
                start = stop

    def _lines(self) -> Iterator[tuple[int, list[str]]]:
        """Blocks of whole lines with the number of the first; at most one line is ever held beyond a piece."""
        held: list[bytes] = []
        number = 1
        for piece in self._pieces(PIECE):
            cut = piece.rfind(b"\n")
            if cut >= 0:
                lines = decode(b"".join([*held, piece[:cut]]), self.label, number).replace("\r\n", "\n").split("\n")
                lines[-1] = lines[-1].removesuffix("\r")
                yield number, lines
                number += len(lines)
                held = []
            held.append(piece[cut + 1 :])
            if sum(map(len, held)) > MAX_LINE_BYTES:
                raise WorkloadError(
                    f"the line is longer than {MAX_LINE_BYTES >> 20} MiB; a trace has one request a line",
                    where=f"{self.label}:{number}",
                )
        if any(held):
            yield number, [decode(b"".join(held), self.label, number).removesuffix("\r")]

    def _pieces(self, size: int) -> Iterator[bytes]:
        return inflate(self._raw(1 << 17), self.label) if self.gzipped else self._raw(size)

    def _raw(self, size: int) -> Iterator[bytes]:
        try:
            with self.path.open("rb") as stream:
                while piece := stream.read(size):
                    yield piece
        except OSError as error:
            raise WorkloadError(f"cannot read the trace: {error.strerror}", where=self.label) from None

    def _read_head(self) -> bytes:
        head = b""
        for piece in self._pieces(HEAD_BYTES):
            head += piece
            if len(head) >= HEAD_BYTES:
                break
        return head[:HEAD_BYTES]

    def _starts_with_gzip(self) -> bool:
        return next(self._raw(len(GZIP_MAGIC)), b"") == GZIP_MAGIC


def file_size(path: Path, label: str) -> int:
    """Size in bytes of a regular, non-empty file."""
    try:
        status = path.stat()
    except FileNotFoundError:
        raise WorkloadError(f"no such trace file{near_file(path)}", where=label) from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise WorkloadError(f"cannot read the trace: {reason}", where=label) from None
    if not stat.S_ISREG(status.st_mode):
        kind = "a folder" if stat.S_ISDIR(status.st_mode) else "not a regular file"
        raise WorkloadError(f"the trace is {kind}; give a file", where=label)
    if status.st_size == 0:
        raise WorkloadError("the trace is empty (0 bytes)", where=label)
    return status.st_size


def near_file(path: Path) -> str:
    """What to add to "no such file": the nearest name in its folder."""
    try:
        close = nearest(path.name, sorted(file.name for file in path.parent.iterdir()))
    except OSError:
        return f": the folder {str(path.parent)!r} cannot be listed"
    return f" (did you mean {close!r}?)" if close else ""


def refuse_foreign(head: bytes, label: str) -> None:
    """Raise for content that is certainly not a text trace: pointers, web pages, archives, binary data."""
    for magic, what in FOREIGN:
        if head.startswith(magic):
            raise WorkloadError(f"the trace {what}", where=label)
    if head.lstrip()[:14].lower().startswith((b"<!doctype", b"<html", b"<?xml")):
        raise WorkloadError("the trace is a web page; download the raw file instead of its page", where=label)
    if head.startswith(GZIP_MAGIC):
        raise WorkloadError("the trace is compressed twice; decompress it once", where=label)
    if b"\0" in head:
        raise WorkloadError("the trace is binary, not text", where=label)


def decode(data: bytes, label: str, number: int, *, partial: bool = False) -> str:
    """UTF-8 text of ``data``, which starts at line ``number``; a byte-order mark at the start of a file is dropped."""
    if number == 1:
        data = data.removeprefix(b"\xef\xbb\xbf")
    try:
        text = data.decode("utf-8", "ignore" if partial else "strict")
    except UnicodeDecodeError as error:
        line = number + data.count(b"\n", 0, error.start)
        raise WorkloadError("not UTF-8 text: is the trace binary or damaged?", where=f"{label}:{line}") from None
    if "\0" in text:
        line = number + text.count("\n", 0, text.index("\0"))
        raise WorkloadError("a zero byte: is the trace binary or damaged?", where=f"{label}:{line}")
    return text
