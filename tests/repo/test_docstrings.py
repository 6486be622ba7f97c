"""Docstrings exist, cite vLLM so that a reader finds the place, and name only what is there."""

from __future__ import annotations

import ast
import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from sim.core import kinds
from tests.repo.tree import PACKAGES, ROOT, definitions, docstrings, parse, python_files

CITED = re.compile(r"(?<![\w/.])(?P<file>(?:\w+/)+\w+\.py)\b(?::(?P<first>\d+)(?:-(?P<last>\d+))?)?")
DOTTED = re.compile(r"`+((?:sim|workloads|gpu_check)(?:\.\w+)+)(?:\(\))?`+")
ORACLE = Path(os.environ.get("HYBRIDKV_ORACLE_VENV", ROOT / ".venv-oracle"))


def citations(path: str) -> Iterator[re.Match[str]]:
    """Each place of vLLM's source that a file names: a path that is not one of this project's own."""
    for match in CITED.finditer((ROOT / path).read_text(encoding="utf-8")):
        if not (ROOT / match["file"]).exists():
            yield match


@pytest.mark.parametrize("path", python_files())
def test_a_file_says_what_it_is(path: str) -> None:
    assert ast.get_docstring(parse(path)) or path.endswith("__init__.py")


@pytest.mark.parametrize("path", python_files(*PACKAGES))
def test_what_is_public_has_a_docstring(path: str) -> None:
    bare = [definition for definition in definitions(path) if definition.is_public and not definition.docstring]
    assert not bare, "no docstring: " + "; ".join(map(str, bare))


@pytest.mark.parametrize("path", python_files(*PACKAGES))
def test_a_citation_says_of_which_release(path: str) -> None:
    cited = [match[0] for match in citations(path)]
    text = (ROOT / path).read_text(encoding="utf-8").lower()
    assert not cited or "vllm 0.33.0" in text, f"write it as: vllm 0.33.0 {cited[0]}"


def test_cited_files_and_lines_exist_in_vllm() -> None:
    packages = sorted(ORACLE.glob("lib/python*/site-packages/vllm"))
    if not packages:
        pytest.skip("vLLM 0.33.0 is not installed here: `make oracle` builds .venv-oracle")
    wrong = [
        f"{path} cites {match[0]}"
        for path in python_files(*PACKAGES)
        for match in citations(path)
        if not is_in_vllm(packages[0], match)
    ]
    assert not wrong, "; ".join(wrong)


def is_in_vllm(package: Path, citation: re.Match[str]) -> bool:
    """Whether the cited file is there and long enough for the last line named."""
    source = package / citation["file"].removeprefix("vllm/")
    if not source.is_file():
        return False
    return int(citation["last"] or citation["first"] or 0) <= len(source.read_text(encoding="utf-8").splitlines())


@pytest.mark.parametrize("path", [*python_files(*PACKAGES), "README.md", "docs/guide.md", "CONTRIBUTING.md"])
def test_names_in_prose_exist(path: str) -> None:
    """``sim.run.run_scenario`` in a docstring or a page must be a module, or a name defined in one."""
    text = (ROOT / path).read_text(encoding="utf-8")
    prose = [text] if path.endswith(".md") else [docstring for _, docstring in docstrings(path)]
    gone = [name for part in prose for name in DOTTED.findall(part) if not is_defined(name)]
    assert not gone, f"{path} names what is not there: {gone}"


def is_defined(dotted: str) -> bool:
    """Whether a dotted name is one of the project's modules, or is bound in the module named before its last part.

    >>> is_defined("gpu_check.command"), is_defined("gpu_check.command.register"), is_defined("gpu_check.nowhere")
    (True, True, False)
    """
    parts = dotted.split(".")
    for cut in range(len(parts), 0, -1):
        for candidate in ("/".join(parts[:cut]) + ".py", "/".join(parts[:cut]) + "/__init__.py"):
            if (ROOT / candidate).is_file():
                return cut == len(parts) or parts[cut] in names_bound_in(candidate)
    return False


def names_bound_in(path: str) -> set[str]:
    """The names a module binds at its top level: definitions, assignments, imports."""
    bound: set[str] = set()
    for node in ast.walk(parse(path)):
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            bound.add(node.name)
        elif isinstance(node, ast.alias):
            bound.add((node.asname or node.name).partition(".")[0])
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            bound.add(node.id)
    return bound


CUTS = {
    "sim/core/full.py": 1,
    "sim/core/sliding_window.py": 1,
    "sim/core/chunked_local.py": 1,
    "sim/core/mamba.py": 2,
    "sim/core/split.py": 1,
    "sim/core/rswa.py": 1,
    "sim/core/replay.py": 1,
    "sim/core/cross.py": 1,
    "sim/core/partial.py": 1,
    "sim/core/kinds.py": 3,
    "sim/core/retention.py": 3,
    "sim/core/eagle.py": 1,
    "sim/core/drafts.py": 2,
    "sim/core/kept.py": 2,
    "sim/core/hashing.py": 1,
    "sim/specs/base.py": 1,
}
"""By file of a rule that cuts the token axis: functions with a picture of it that ends in a doctest, at least."""
PICTURE = re.compile(r"^ {4,}.*\|.*$", re.MULTILINE)


def pictured(path: str) -> list[str]:
    """The functions of a file whose docstrings have a picture, indented and with bars, and a doctest after it."""
    found = []
    for definition in definitions(path):
        drawn = PICTURE.search(definition.docstring or "")
        if drawn and ">>>" in str(definition.docstring)[drawn.end() :]:
            found.append(definition.name)
    return found


@pytest.mark.parametrize("path", CUTS)
def test_a_rule_that_cuts_the_token_axis_has_a_picture_that_is_tried(path: str) -> None:
    assert len(pictured(path)) >= CUTS[path], pictured(path)


def test_every_kind_has_such_a_picture() -> None:
    listed = set(re.findall(r"(\w+\.py)\.?$", str(kinds.__doc__), re.MULTILINE)) - {"tables.py"}
    assert {f"sim/core/{name}" for name in listed} <= set(CUTS)


@pytest.mark.parametrize("path", python_files("sim/core"))
def test_a_compiled_function_of_numbers_shows_some(path: str) -> None:
    """Where all arguments and the result are numbers, an example says more than a sentence."""
    silent = [
        node.name
        for node in parse(path).body
        if isinstance(node, ast.FunctionDef)
        and not node.name.startswith("_")
        and [ast.unparse(decorator) for decorator in node.decorator_list] == ["compiled"]
        and all(ast.unparse(arg.annotation) in ("int", "bool") for arg in node.args.args if arg.annotation)
        and ">>>" not in str(ast.get_docstring(node))
    ]
    assert silent == []
