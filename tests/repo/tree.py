"""What the tests of the repository look at: its files and the functions in them."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("sim", "workloads", "gpu_check")
FOLDERS = (*PACKAGES, "tests", "benchmarks", "notebooks")


@dataclass(frozen=True, slots=True)
class Definition:
    """One function or class: ``name`` is dotted inside its file, ``lines`` counts from its first decorator on."""

    path: str
    name: str
    line: int
    lines: int
    docstring: str | None
    is_function: bool

    @property
    def is_public(self) -> bool:
        """No part of its dotted name starts with an underscore, and it is no function's own helper."""
        return not any(part.startswith("_") or part == "<locals>" for part in self.name.split("."))

    def __str__(self) -> str:
        return f"{self.path}:{self.line} {self.name}"


def python_files(*folders: str) -> list[str]:
    """The project's Python files under ``folders`` (all of them by default), relative to the root, sorted."""
    found = (path for folder in folders or FOLDERS for path in (ROOT / folder).rglob("*.py"))
    return sorted(path.relative_to(ROOT).as_posix() for path in found)


def scenario_files() -> list[str]:
    """The shipped scenarios, relative to the root, sorted."""
    return sorted(path.relative_to(ROOT).as_posix() for path in (ROOT / "scenarios").glob("*.yaml"))


@cache
def parse(path: str) -> ast.Module:
    """The syntax tree of one file, given relative to the root."""
    return ast.parse((ROOT / path).read_text(encoding="utf-8"), filename=path)


def definitions(path: str) -> Iterator[Definition]:
    """Every function and class of a file, nested ones included."""
    yield from _walk(path, parse(path), "")


def _walk(path: str, node: ast.AST, prefix: str) -> Iterator[Definition]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            is_function = not isinstance(child, ast.ClassDef)
            name = prefix + child.name
            first = min([child.lineno, *(decorator.lineno for decorator in child.decorator_list)])
            size = (child.end_lineno or first) - first + 1
            yield Definition(path, name, child.lineno, size, ast.get_docstring(child), is_function)
            yield from _walk(path, child, f"{name}.<locals>." if is_function else f"{name}.")
        else:
            yield from _walk(path, child, prefix)


def docstrings(path: str) -> Iterator[tuple[int, str]]:
    """Each docstring of a file with the line its owner stands on."""
    text = ast.get_docstring(parse(path))
    if text:
        yield 1, text
    for definition in definitions(path):
        if definition.docstring:
            yield definition.line, definition.docstring
