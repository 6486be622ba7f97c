"""``hybridkv explain-log``: a startup log, or a page of metrics, recomputed."""

from __future__ import annotations

import sys
from pathlib import Path

from sim.cli.console import print_json, print_tables
from sim.errors import InputError
from sim.report.log_tables import log_data, log_tables
from sim.startup_log import explain_text

_MOST_BYTES = 64 << 20
_UTF_16 = (b"\xff\xfe", b"\xfe\xff")
"""How files begin that PowerShell wrote."""


def explain_log_command(file: str, model: str | None, *, as_json: bool) -> int:
    """Explain the log in ``file`` (``-``: standard input) and print the answer; 0 whether or not it adds up."""
    found = explain_text(_read(file), model=model, where=file)
    if as_json:
        print_json(log_data(found))
    else:
        print_tables(log_tables(found))
    return 0


def _read(file: str) -> str:
    try:
        raw = sys.stdin.buffer.read(_MOST_BYTES + 1) if file == "-" else _bytes_of(Path(file))
    except OSError as error:
        why = error.strerror or error
        raise InputError(f"cannot be read ({why}); give a file, or - for input", where=file) from error
    if len(raw) > _MOST_BYTES:
        raise InputError("is larger than 64 MiB; cut the lines of the start out of it", where=file)
    return raw.decode("utf-16" if raw[:2] in _UTF_16 else "utf-8", errors="replace")


def _bytes_of(path: Path) -> bytes:
    with path.open("rb") as stream:
        return stream.read(_MOST_BYTES + 1)
