"""The pages tell the truth: the file map, the change log, the commands, the licence."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest

from sim.core import kinds
from sim.engine_config.unmodelled import UNMODELLED
from tests.repo.file_map import PAGE, file_map, sentence, split_page
from tests.repo.readme_blocks import Block, blocks
from tests.repo.tree import PACKAGES, ROOT

README = (ROOT / "README.md").read_text(encoding="utf-8")
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
PAGES = ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "docs/guide.md", "benchmarks/README.md", "notebooks/README.md")

PAGE_OF_BLOCKS = """
<!-- file: a.yaml -->
```yaml
x: 1
```
```console
$ cat a.yaml
x: 1
```
<!-- not run: it needs a network -->
```console
$ make test
```
"""


def test_the_file_map_is_what_the_files_say() -> None:
    _, written, _ = split_page(PAGE.read_text(encoding="utf-8"))
    assert written == file_map(), "CONTRIBUTING.md is behind its files: run `make map`"


def test_every_file_says_what_it_is_in_one_line() -> None:
    rows = [row for row in file_map().splitlines() if row.startswith("| `")]
    assert rows
    assert not [row for row in rows if row.endswith("|  |")]


def test_the_readme_names_the_top_level() -> None:
    missing = [
        name for name in (*PACKAGES, "scenarios", "notebooks", "tests", "benchmarks") if f"`{name}/`" not in README
    ]
    assert not missing


def test_the_readme_says_what_is_left_out() -> None:
    missing = [left.name for left in UNMODELLED if f"| {left.name} | {left.changes} |" not in README]
    assert not missing


@pytest.mark.parametrize("page", PAGES)
def test_links_lead_somewhere(page: str) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    links = re.findall(r"\]\(([^)\s#]*)(?:#([\w-]+))?\)", text)
    missing = [target for target, _ in links if "://" not in target and not ((ROOT / page).parent / target).exists()]
    assert missing == []
    sections = [(target, name) for target, name in links if name and "://" not in target]
    pages = {target: (ROOT / page).parent / target if target else ROOT / page for target, _ in sections}
    assert [(target, name) for target, name in sections if name not in anchors(pages[target])] == []


def anchors(page: Path) -> set[str]:
    """The names of a page's sections as links say them."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading).lower().replace(" ", "-") for heading in headings}


def test_every_kind_of_layer_has_a_rule_a_judge_and_a_twin() -> None:
    """A row of the table leads to the rule's file, to its comparison with vLLM and to the same rule in the twin.

    All files that the core's list of kinds names are in it, and all classes of the twin.
    """
    start = README.index("| layers | rule |")
    rows = README[start : README.index("\n\n", start)].splitlines()[2:]
    for row in rows:
        _, _, rule, judge, twin, _ = row.split("|")
        assert "(sim/core/" in rule or "(sim/planning/" in rule, row
        assert "(tests/oracle/" in judge, row
        assert "(tests/twin/" in twin, row
    linked = set(re.findall(r"\(((?:sim|tests/twin)/[^)]*)\)", "".join(rows)))
    listed = set(re.findall(r"(\w+\.py)\.?$", str(kinds.__doc__), re.MULTILINE))
    assert len(listed) > 5
    assert {f"sim/core/{name}" for name in listed} <= linked
    twins = {path.relative_to(ROOT).as_posix() for path in (ROOT / "tests/twin/kinds").glob("[!_]*.py")}
    assert twins <= linked
    assert [target for target in linked if not (ROOT / target).exists()] == []


def test_the_readme_opens_with_the_two_commands() -> None:
    opening = README[: README.index("\n## ", README.index("\n## ") + 1)]
    assert "make demo" in opening
    assert "make test" in opening


@pytest.mark.parametrize("page", PAGES)
def test_links_and_figures_on_a_page_exist(page: str) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    targets = [target.partition("#")[0] for target in re.findall(r"\]\(([^)\s]+)\)", text) if "://" not in target]
    gone = [target for target in targets if target and not ((ROOT / page).parent / target).exists()]
    assert not gone


@pytest.mark.parametrize("page", PAGES)
def test_nothing_is_left_to_fill_in(page: str) -> None:
    left = [line for line in (ROOT / page).read_text(encoding="utf-8").splitlines() if "fill:" in line]
    assert not left


def test_make_targets_on_the_pages_exist() -> None:
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    named = {
        name for page in PAGES for name in re.findall(r"`make ([a-z]+)", (ROOT / page).read_text(encoding="utf-8"))
    }
    assert named <= targets


def test_the_change_log_starts_with_this_version() -> None:
    heading = re.search(r"^## (\S+)", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert heading
    assert heading[1] == PROJECT["project"]["version"]


def test_the_licence_is_whole() -> None:
    text = (ROOT / "LICENSE").read_text(encoding="utf-8")
    assert PROJECT["project"]["license"] == "Apache-2.0"
    assert "Apache License" in text
    assert "END OF TERMS AND CONDITIONS" in text


def test_every_dependency_has_its_reason_and_only_a_lower_bound() -> None:
    project = PROJECT["project"]
    extras = [spec for specs in project["optional-dependencies"].values() for spec in specs]
    contributing = PAGE.read_text(encoding="utf-8")
    for spec in [*project["dependencies"], *extras]:
        match = re.fullmatch(r"([\w-]+)>=[\d.]+(; sys_platform == '\w+')?", spec)
        assert match, f"{spec}: a lower bound, nothing else"
        assert f"`{match[1]}`" in contributing, f"CONTRIBUTING.md does not say why {match[1]} is needed"
        assert match[1].lower() != "vllm", "vLLM is the oracle, in an environment of its own, never a dependency"


@pytest.mark.parametrize("page", ["README.md", "docs/guide.md"])
def test_every_command_block_runs_or_says_why_not(page: str) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    silent = [block for block in blocks(text) if block.is_command and not block.runs and not block.reason]
    assert not silent


def test_blocks_are_read_as_documented() -> None:
    file, shown, skipped = blocks(PAGE_OF_BLOCKS)
    assert file == Block("yaml", "x: 1\n", 3, file="a.yaml")
    assert shown.runs
    assert shown.commands() == [("cat a.yaml", "x: 1\n")]
    assert (skipped.runs, skipped.reason) == (False, "it needs a network")


def test_a_first_sentence_ends_where_the_next_begins() -> None:
    assert (
        sentence("tests/repo/tree.py")
        == "What the tests of the repository look at: its files and the functions in them"
    )
