"""Tables on a terminal: however narrow it is, a number is never broken and nothing is cut off."""

from __future__ import annotations

import io
import re

import pytest
from rich.console import Console

from sim.cli import console
from sim.report.tables import Table

ROWS = [
    ("gemma-3-27b", "52 swa 1024 + 10 full", "16", "573,440", "97,280", "291,658", "81 %"),
    (
        "deepseek-v4-flash",
        "63 swa_mla 128 + 62 mla + 42 swa_mla 8",
        "4, 8, 64, 256",
        "25,447",
        "4,587",
        "4,169,106",
        "84 %",
    ),
]
TABLE = Table(
    "Models that fit on one GPU",
    ("name", "layers", "block_size", "B/token at 1k", "at 32k", "in 40 GiB", "saves"),
    ROWS,
    ["B/token: blocks a request of that length keeps, over its tokens"],
)


def shown(width: int, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The lines of the table on a terminal of that width."""
    text = io.StringIO()
    terminal = Console(file=text, width=width, highlight=False)
    monkeypatch.setattr("rich.console.Console", lambda **_: terminal)
    console._print_rich([TABLE, TABLE])
    return text.getvalue().splitlines()


@pytest.mark.parametrize("width", [140, 100, 80, 60, 40])
def test_numbers_stay_whole(width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = shown(width, monkeypatch)
    assert max(map(len, lines)) <= width
    for row in ROWS:
        for number in (row[0], *row[3:]):
            assert any(re.search(rf"(^|\s){re.escape(number)}(\s|$)", line) for line in lines), number
    assert "…" not in "".join(lines)


def test_parts_begin_with_the_first_column_again(monkeypatch: pytest.MonkeyPatch) -> None:
    wide, narrow = shown(140, monkeypatch), shown(60, monkeypatch)
    assert sum("deepseek-v4-flash" in line for line in wide) == 2
    assert sum("deepseek-v4-flash" in line for line in narrow) > 2
