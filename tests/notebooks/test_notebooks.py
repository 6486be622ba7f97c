"""Every notebook runs from top to bottom and says what its saved outputs say."""

from __future__ import annotations

from pathlib import Path

import nbformat
import pytest

from tests.notebooks.execute import executed, notebooks, said


@pytest.mark.parametrize("path", notebooks(), ids=lambda path: path.stem)
@pytest.mark.filterwarnings("default")  # the kernel's client has deprecations of its own
def test_a_notebook_says_what_it_said(path: Path) -> None:
    saved = nbformat.read(path, as_version=4)
    assert said(executed(path)) == said(saved)


def test_there_is_a_notebook_for_every_question() -> None:
    assert [path.name[:2] for path in notebooks()] == ["01", "02", "03", "04", "05"]


@pytest.mark.parametrize("path", notebooks(), ids=lambda path: path.stem)
def test_a_notebook_opens_with_its_question_and_has_outputs(path: Path) -> None:
    book = nbformat.read(path, as_version=4)
    assert book.cells[0].cell_type == "markdown"
    assert "?" in book.cells[0].source
    assert all(cell.outputs for cell in book.cells if cell.cell_type == "code" and not cell.source.startswith("def "))
