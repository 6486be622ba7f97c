"""A progress bar on stderr, where stderr is a terminal."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from sim.run import ProgressState


@contextmanager
def points_bar(name: str, total: int, done: int) -> Iterator[Callable[[], None]]:
    """A function to call for each finished point; on a terminal a bar with the time left, gone when the block ends."""
    if not sys.stderr.isatty():
        yield lambda: None
        return
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    left = TimeRemainingColumn(compact=True)
    columns = (TextColumn("{task.description}"), BarColumn(bar_width=20), MofNCompleteColumn(), TextColumn("points,"))
    with Progress(
        *columns, left, TextColumn("left,"), TimeElapsedColumn(), console=Console(stderr=True), transient=True
    ) as bar:
        task = bar.add_task(name, total=total, completed=done)
        yield lambda: bar.advance(task)


@contextmanager
def progress_bar(name: str) -> Iterator[Callable[[ProgressState], None] | None]:
    """A function to report progress to, or None where nobody watches; the bar is gone when the block ends."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (
        TextColumn("{task.description}"),
        BarColumn(bar_width=20),
        MofNCompleteColumn(),
        TextColumn("requests, {task.fields[simulated]} simulated"),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(f"{name}: loading the compiled core", total=None, simulated="0 s")

        def report(state: ProgressState) -> None:
            bar.update(
                task,
                description=name,
                completed=state.finished,
                total=state.expected,
                simulated=f"{state.now_s:,.0f} s",
            )

        yield report


@contextmanager
def status_line(name: str) -> Iterator[Callable[[str], None]]:
    """A function that says on stderr what is being done, where stderr is a terminal; nothing stays of it."""
    if not sys.stderr.isatty():
        yield lambda _: None
        return
    from rich.console import Console

    with Console(stderr=True).status(name) as line:
        yield lambda doing: line.update(f"{name}: {doing}")
