"""The guide's table of trace formats is the list of readers."""

from __future__ import annotations

import re

from tests.repo.tree import ROOT
from workloads.options import OPTION_KEYS
from workloads.readers import FORMATS
from workloads.replay import KEYS

ROW = re.compile(r"^\| `(?P<name>[a-z-]+)` \| (?P<title>.+?)(?P<folder>; a folder of files)? \|$", re.MULTILINE)


def test_the_table_names_every_format_and_no_other() -> None:
    page = (ROOT / "docs/guide.md").read_text(encoding="utf-8")
    table = page.partition("| `format` | what is read |")[2].partition("\n\n")[0]
    shown = [(match["name"], match["title"], bool(match["folder"])) for match in ROW.finditer(table)]
    assert shown == [(name, form.title, form.folder) for name, form in FORMATS.items()]


def test_the_section_names_every_key() -> None:
    page = (ROOT / "docs/guide.md").read_text(encoding="utf-8")
    section = page.partition("## Your own traffic")[2].partition("\n## ")[0]
    missing = [key for key in (*KEYS, *OPTION_KEYS) if f"`{key}" not in section and f"{key}:" not in section]
    assert not missing
