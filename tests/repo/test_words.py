"""The project speaks of itself alone: no machine's paths, no registry's address, no tracker's numbers."""

from __future__ import annotations

import re

import pytest

from tests.repo.tree import ROOT, python_files, scenario_files

PAGES = (
    "README.md",
    "CONTRIBUTING.md",
    "CHANGELOG.md",
    "docs/guide.md",
    "Makefile",
    "pyproject.toml",
    ".ci/run",
    ".ci/find-python",
)
OWN = "tests/repo/test_words.py"
UNWANTED = {
    "a path of one machine": r"(?<![\w.])/(?:work|root|home|Users|mnt|opt)/\w",
    "the address of a registry or a mirror": r"(?:pypi|pythonhosted|npmjs)\.(?:org|com)|--(?:extra-)?index-url",
    "who works here": r"\b(?:this workplace|the CEO|helper [A-Z]\b|AI-generated)",
    "a tracker's number": r"\b(?:issue|PR|ticket) #?\d",
    "work left for later": r"\b(?:TODO|FIXME|XXX|HACK)\b",
}


def text_files() -> list[str]:
    """Everything a reader may open, but this list itself."""
    pages = [page for page in (*PAGES, "benchmarks/README.md", "notebooks/README.md") if (ROOT / page).exists()]
    return [*pages, *scenario_files(), *(path for path in python_files() if path != OWN)]


@pytest.mark.parametrize("path", text_files())
def test_a_file_speaks_of_the_project_alone(path: str) -> None:
    text = (ROOT / path).read_text(encoding="utf-8")
    found = [
        f"{path}:{text.count(chr(10), 0, match.start()) + 1} {match[0]!r} ({what})"
        for what, pattern in UNWANTED.items()
        for match in re.finditer(pattern, text, re.IGNORECASE if what == "who works here" else 0)
    ]
    assert not found
