"""The project's end of the pipe to vLLM: a long-lived process that is asked one case after another."""

from __future__ import annotations

import json
import subprocess
import tempfile
from collections.abc import Generator
from pathlib import Path
from types import TracebackType
from typing import Any, Self

ROOT = Path(__file__).resolve().parent.parent.parent
LAST = ("done", "refused", "error")


class OracleError(Exception):
    """vLLM's side failed: not a difference, and nothing that could be compared."""


class Oracle:
    """Runs ``tests/oracle/vllm_side.py`` in the oracle's environment; a context manager.

    Cases are answered one at a time: a case's lines must be read to their end before the next case is asked (an
    iterator given up early is drained).
    """

    def __init__(self, python: Path | str) -> None:
        self._errors = tempfile.TemporaryFile("w+")  # noqa: SIM115
        self._process = subprocess.Popen(
            [str(python), "-m", "tests.oracle.vllm_side"],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
            start_new_session=True,  # Ctrl-C is for this side, which ends the other
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        self._process.kill()
        self._process.communicate()
        self._errors.close()

    def lines(self, case: dict[str, Any]) -> Generator[dict[str, Any]]:
        """What vLLM says about a case, line by line, the closing line included.

        Raises OracleError where vLLM's side broke down.
        """
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None
        assert stdout is not None
        stdin.write(json.dumps(case) + "\n")
        stdin.flush()
        last = False
        try:
            while not last:
                line = self._read(stdout.readline())
                last = _ends_a_case(line)
                if "error" in line:
                    raise OracleError("vLLM's side raised:\n" + line["error"])
                yield line
        finally:
            while not last:
                last = _ends_a_case(self._read(stdout.readline()))

    def _read(self, text: str) -> dict[str, Any]:
        if not text:
            self._process.wait()
            self._errors.seek(0)
            raise OracleError("vLLM's side ended unexpectedly:\n" + self._errors.read()[-4000:])
        line: dict[str, Any] = json.loads(text)
        return line


def _ends_a_case(line: dict[str, Any]) -> bool:
    return any(key in line for key in LAST)
