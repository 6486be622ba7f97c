"""What a person who gave wrong input gets to see: one line, and an exit code."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches


class HybridKVError(Exception):
    """An error meant for the user: printed as one line, never as a traceback.

    ``where`` names the place of the fault (``file:line`` or a dotted key path), ``message`` says what was given
    and what is allowed or what to do. ``exit_code`` is what the command line ends with.
    """

    exit_code = 2

    def __init__(self, message: str, *, where: str | None = None) -> None:
        self.message = " ".join(message.split())
        self.where = where
        super().__init__(str(self))

    def __str__(self) -> str:
        return f"{self.where}: {self.message}" if self.where else self.message


class InputError(HybridKVError):
    """The input (a file, a key, a flag, a trace row) cannot be used as given. Exit code 2."""


class RefusalError(InputError):
    """vLLM 0.33.0 itself would refuse to start with this configuration. Exit code 2."""


class FailureError(RefusalError):
    """vLLM 0.33.0 itself would start, and end with an exception on the way. Exit code 2."""


class StallError(HybridKVError):
    """The simulation cannot go on: nothing is in flight and no future event can free blocks. Exit code 1."""

    exit_code = 1


class StoppedError(HybridKVError):
    """Stopped by Ctrl-C where finished work is kept; ``message`` says how much. Exit code 130."""

    exit_code = 130

    def __init__(self, message: str) -> None:
        super().__init__(f"interrupted; {message}")


def nearest(word: str, allowed: Iterable[str]) -> str | None:
    """The allowed spelling closest to ``word``, or None when nothing is close.

    >>> nearest("max_num_seq", ["max_num_seqs", "block_size"])
    'max_num_seqs'
    """
    matches = get_close_matches(word, list(allowed), n=1, cutoff=0.6)
    return matches[0] if matches else None
