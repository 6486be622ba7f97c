"""Printing: tables on stdout (coloured on a terminal, plain text elsewhere), a progress bar on stderr."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from textwrap import wrap
from typing import Any

from sim.report.tables import Table

WIDTH = 110
"""Columns that titles and notes are wrapped to where stdout is no terminal; rows are as wide as they are."""
INDENT, GAP, PROSE = 2, 3, 16
"""Columns of a terminal: left of a table, between two of its columns, and that texts of some words get at least."""


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
    from rich.console import Console
    from rich.padding import Padding
    from rich.text import Text

    console, indent = Console(highlight=False), (0, 0, 0, INDENT)
    for i, table in enumerate(tables):
        if i:
            console.print()
        if table.title:
            console.print(Text(table.title, "bold"))
        for number, part in enumerate(_rich_tables(table, console.width - INDENT)):
            console.print(*([""] if number else []), Padding(part, indent), sep="\n")
        for note in table.notes:
            console.print(Padding(Text(note, "dim"), indent))


def _rich_tables(table: Table, width: int) -> Iterator[Any]:
    """The table, in as many parts as it takes to keep within ``width`` columns."""
    from rich.box import SIMPLE_HEAD
    from rich.markup import escape
    from rich.table import Table as RichTable

    cells = [[name, *(row[i] for row in table.rows)] for i, name in enumerate(table.header)]
    least = [_least_width(column) for column in cells]
    for columns in side_by_side(least, width):
        wanted = [max(map(len, cells[i])) for i in columns]
        shown = RichTable(box=SIMPLE_HEAD, show_header=any(table.header), show_edge=False, pad_edge=False)
        for i, wide in zip(columns, narrowed(wanted, [least[i] for i in columns], width), strict=True):
            justify: Any = "left" if i == 0 or table.prose else "right"
            shown.add_column(escape(table.header[i]), justify=justify, overflow="fold", width=wide)
        for row in table.rows:
            shown.add_row(*(escape(row[i]) for i in columns))
        yield shown


def _least_width(cells: Sequence[str]) -> int:
    """How narrow a column may be: a number stays with its unit, longer texts break between words.

    >>> _least_width(["KV per GPU", "56.45 GiB", "-"]), _least_width(["layers", "52 swa 1024 + 10 full"])
    (9, 16)
    """
    header, *rest = cells
    texts = [cell for cell in rest if cell.count(" ") > 1]
    words = [
        *header.split(),
        *(cell for cell in rest if cell not in texts),
        *(w for text in texts for w in text.split()),
    ]
    return max(*map(len, words), *(min(len(text), PROSE) for text in texts), 0)


def side_by_side(least: Sequence[int], width: int) -> list[list[int]]:
    """Which columns fit beside each other; the others follow below, each time behind the first column again.

    >>> side_by_side([10, 8, 8, 8, 8], 34)
    [[0, 1, 2], [0, 3, 4]]
    """
    parts: list[list[int]] = [[0]]
    for i in range(1, len(least)):
        if len(parts[-1]) > 1 and sum(least[j] + GAP for j in (*parts[-1], i)) - GAP > width:
            parts.append([0])
        parts[-1].append(i)
    return parts if least else []


def narrowed(wanted: Sequence[int], least: Sequence[int], width: int) -> list[int]:
    """Widths of columns that keep within ``width`` where they can: the widest that may give way gives way first.

    >>> narrowed([10, 30, 8], [10, 6, 8], 40)
    [10, 16, 8]
    """
    widths = list(wanted)
    while sum(widths) + GAP * (len(widths) - 1) > width:
        room = [i for i, wide in enumerate(widths) if wide > least[i]]
        if not room:
            break
        widths[max(room, key=lambda i: widths[i])] -= 1
    return widths
