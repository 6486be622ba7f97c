"""Run a notebook in a kernel of its own, and read what its cells printed; as a script, write the outputs into it.

python -m tests.notebooks.execute --write
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

import nbformat
from nbclient import NotebookClient

FOLDER = Path(__file__).resolve().parents[2] / "notebooks"
SECONDS = 300


def notebooks() -> list[Path]:
    """Every notebook, by name."""
    return sorted(FOLDER.glob("*.ipynb"))


def executed(path: Path) -> Any:
    """The notebook with the outputs its cells have now. Raises CellExecutionError where one fails."""
    book = nbformat.read(path, as_version=4)
    client = NotebookClient(book, timeout=SECONDS, kernel_name="python3", resources={"metadata": {"path": str(FOLDER)}})
    return client.execute()


def said(book: Any) -> list[list[str]]:
    """What each code cell gave, as text: streams as printed, results as plain text, pictures by their kind."""
    return [[_text(output) for output in cell.outputs] for cell in book.cells if cell.cell_type == "code"]


def _text(output: Any) -> str:
    if output.output_type == "stream":
        return str(output.text)
    kinds = sorted(output.data)
    pictures = [kind for kind in kinds if kind.startswith("image/")]
    return f"a picture: {pictures[0]}" if pictures else re.sub(r"0x[0-9a-f]+", "0x…", str(output.data["text/plain"]))


def _clean(book: Any) -> Any:
    """Without what changes from run to run: times of execution."""
    for cell in book.cells:
        cell.metadata.pop("execution", None)
    book.metadata = {key: value for key, value in book.metadata.items() if key in ("kernelspec", "language_info")}
    book.metadata["language_info"] = {"name": "python"}
    return book


if __name__ == "__main__":
    wanted = [name for name in sys.argv[1:] if not name.startswith("-")]
    for notebook in notebooks():
        if not wanted or any(name in notebook.name for name in wanted):
            result = executed(notebook)
            print(notebook.name, *said(result), sep="\n")
            if "--write" in sys.argv:
                nbformat.write(_clean(result), notebook)
