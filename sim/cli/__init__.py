"""The command line: the only place that prints and decides exit codes."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import NoReturn

from sim.cli.errors import INTERRUPTED, PROGRAM, guarded


def main(arguments: Sequence[str] | None = None) -> int:
    """Run ``hybridkv`` with ``arguments`` (default: the process's own) and return its exit code; never raises."""
    return guarded(lambda: _dispatch(list(sys.argv[1:] if arguments is None else arguments)))


def _dispatch(arguments: list[str]) -> int:
    from sim.cli.app import command

    with _unwinding_on_sigterm():
        outcome = command().main(args=arguments or ["--help"], prog_name=PROGRAM, standalone_mode=False)
    if outcome == INTERRUPTED:  # the parser turns Ctrl-C into an exit code
        raise KeyboardInterrupt
    return outcome if isinstance(outcome, int) else 0


@contextmanager
def _unwinding_on_sigterm() -> Iterator[None]:
    """Treat SIGTERM as Ctrl-C while a command runs: the stack unwinds and removes what was staged."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, _terminated)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _terminated(number: int, frame: FrameType | None) -> NoReturn:
    raise KeyboardInterrupt
