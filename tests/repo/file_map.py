"""The file map of CONTRIBUTING.md, made from each file's own first sentence: ``make map`` writes it anew."""

from __future__ import annotations

import ast
import re
import sys

import yaml

from tests.repo.tree import PACKAGES, ROOT, parse, python_files, scenario_files

PAGE = ROOT / "CONTRIBUTING.md"
BEGIN = "<!-- file map: begin; `make map` writes it, a test holds it true -->"
END = "<!-- file map: end -->"


def mapped_files() -> list[str]:
    """What the map lists: every scenario and every Python file, an ``__init__.py`` only where it says something."""
    sources = [path for path in python_files() if sentence(path) or not path.endswith("__init__.py")]
    return [*sources, *scenario_files()]


def sentence(path: str) -> str:
    """What a file says it is: the first sentence of a module's docstring, or a scenario's whole question."""
    if path.endswith(".yaml"):
        text = str(yaml.safe_load((ROOT / path).read_text(encoding="utf-8"))["question"])
    else:
        text = first_sentence(ast.get_docstring(parse(path)) or "")
    return " ".join(text.split()).rstrip(".").replace("|", "\\|")


def first_sentence(docstring: str) -> str:
    r"""The first sentence of the first paragraph, without roles.

    >>> first_sentence("What :mod:`a.b` is. vllm 0.33.0 a/b.py:7\n\nMore.")
    'What `a.b` is.'
    """
    paragraph = re.sub(r":\w+:(?=`)", "", docstring.partition("\n\n")[0])
    return re.split(r"(?<=[.?!])\s+(?=[A-Z`\"'(]|vllm )", paragraph, maxsplit=1)[0]


def file_map() -> str:
    """The whole map: one table per top-level folder."""
    parts = []
    for folder in (*PACKAGES, "scenarios", "tests", "benchmarks", "notebooks"):
        files = [path for path in mapped_files() if path.startswith(folder + "/")]
        if files:
            rows = [f"| `{path}` | {sentence(path)} |" for path in files]
            parts.append("\n".join(["| file | what it holds |", "| --- | --- |", *rows]))
    return "\n\n".join(parts)


def split_page(text: str) -> tuple[str, str, str]:
    """The page before the map, the map as written there, and what follows it; raises ValueError without markers."""
    start, end = text.index(BEGIN) + len(BEGIN), text.index(END)
    return text[:start], text[start:end].strip(), text[end:]


def main() -> int:
    """Write the map into the page with ``--write``, print it otherwise."""
    if sys.argv[1:] == ["--write"]:
        before, _, after = split_page(PAGE.read_text(encoding="utf-8"))
        PAGE.write_text(f"{before}\n\n{file_map()}\n\n{after}", encoding="utf-8")
    else:
        print(file_map())
    return 0


if __name__ == "__main__":
    sys.exit(main())
