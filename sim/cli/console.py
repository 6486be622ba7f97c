"""Printing: tables on stdout (coloured on a terminal, plain text elsewhere), a progress bar on stderr."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from textwrap import wrap
from typing import Any

from sim.report.tables import Table

WIDTH = 110
"""Columns that titles and notes are wrapped to where stdout is no terminal; rows are as wide as they are."""


def print_json(value: Any) -> None:
    """Print ``value`` as indented JSON."""
    sys.stdout.write(json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False) + "\n")


def print_tables(tables: Sequence[Table]) -> None:
    """Print tables one below the other, with Rich where stdout is a terminal."""
    if sys.stdout.isatty():
        _print_rich(tables)
        return
    sys.stdout.write("\n\n".join(plain(table) for table in tables) + "\n")


def plain(table: Table) -> str:
    """A table as aligned text: the first column to the left, numbers to the right.

    >>> print(plain(Table("Sizes", ("what", "n"), [("a", "1"), ("bb", "22")])))
    Sizes
      what   n
      a      1
      bb    22
    """
    rows = [table.header, *table.rows] if any(table.header) else list(table.rows)
    widths = [max(len(row[i]) for row in rows) for i in range(len(table.header))] if rows else []
    lines = wrap(table.title, WIDTH)
    for row in rows:
        cells = [
            cell.ljust(width) if i == 0 or table.prose else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        lines.append(("  " + "  ".join(cells)).rstrip())
    for note in table.notes:
        lines += wrap(note, WIDTH, initial_indent="  ", subsequent_indent="  ")
    return "\n".join(lines)


def _print_rich(tables: Sequence[Table]) -> None:
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table as RichTable

    console = Console(highlight=False)
    for table in tables:
        shown = RichTable(
            title=escape(table.title) or None,
            title_justify="left",
            title_style="bold",
            box=SIMPLE_HEAD,
            show_header=any(table.header),
            pad_edge=False,
        )
        for i, name in enumerate(table.header):
            shown.add_column(escape(name), justify="left" if i == 0 or table.prose else "right", overflow="fold")
        for row in table.rows:
            shown.add_row(*map(escape, row))
        console.print(shown)
        for note in table.notes:
            console.print(escape(note), style="dim")
