"""One idea per file, one level of the story per function: the sizes the house keeps."""

from __future__ import annotations

from statistics import median

import pytest

from tests.repo.tree import PACKAGES, ROOT, definitions, python_files

FILE_LINES = 300
FUNCTION_LINES = 60
MEDIAN_FUNCTION_LINES = 15


@pytest.mark.parametrize("path", python_files())
def test_a_file_is_short(path: str) -> None:
    lines = len((ROOT / path).read_text(encoding="utf-8").splitlines())
    assert lines <= FILE_LINES, f"{path} has {lines} lines, {FILE_LINES} are allowed: it holds more than one idea"


def test_every_function_is_short() -> None:
    long = [d for path in python_files() for d in definitions(path) if d.is_function and d.lines > FUNCTION_LINES]
    assert not long, f"over {FUNCTION_LINES} lines: " + "; ".join(f"{d} ({d.lines})" for d in long)


def test_most_functions_are_very_short() -> None:
    sizes = [d.lines for path in python_files(*PACKAGES) for d in definitions(path) if d.is_function]
    assert median(sizes) <= MEDIAN_FUNCTION_LINES
