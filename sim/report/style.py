"""How every figure looks: a palette colour-blind readers can tell apart, one way to number axes, one way to save."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from textwrap import fill
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter, FuncFormatter, MaxNLocator, NullFormatter
from numpy.typing import NDArray

BLUE, ORANGE, GREEN, PURPLE, SKY, VERMILION, GREY = (
    "#0072B2",
    "#E69F00",
    "#009E73",
    "#CC79A7",
    "#56B4E9",
    "#D55E00",
    "#5F5F5F",
)
HYBRID_COLOUR, ALL_FULL_COLOUR = 0, 1
"""Places in ``CYCLE``: the hybrid manager and all-full have the same colour in every figure."""
CYCLE = (BLUE, ORANGE, GREEN, PURPLE, SKY, VERMILION)
"""Okabe and Ito's palette. Lines also differ in dash, so that a grey print tells them apart."""
DASHES: tuple[Any, ...] = ("-", "--", "-.", ":", (0, (5, 1, 1, 1, 1, 1)), (0, (8, 2)))


def run_colours(all_full: Sequence[bool]) -> list[int]:
    """Places in ``CYCLE`` for runs side by side, of which some have the hybrid manager off: a lone one has its own.

    >>> run_colours([False, True]), run_colours([True, False]), run_colours([False, False, True]), run_colours([False])
    ([0, 1], [1, 0], [0, 2, 1], [0])
    """
    if sum(all_full) != 1:
        return [i % len(CYCLE) for i in range(len(all_full))]
    others = iter([HYBRID_COLOUR, *(i for i in range(len(CYCLE)) if i not in (HYBRID_COLOUR, ALL_FULL_COLOUR))] * 9)
    return [ALL_FULL_COLOUR if off else next(others) for off in all_full]


_RC: dict[Any, Any] = {
    "font.size": 10,
    "axes.titlesize": 11,
    "axes.titlelocation": "left",
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#DDDDDD",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "legend.frameon": False,
    "figure.dpi": 100,
    "savefig.dpi": 130,
}


@contextmanager
def styled() -> Iterator[None]:
    """Draw with the project's settings and leave the caller's alone."""
    with mpl.rc_context(_RC):
        yield


def new_figure(
    width: float, height: float, rows: int = 1, columns: int = 1, **options: Any
) -> tuple[Figure, list[Axes]]:
    """A figure of ``width`` × ``height`` inches on no screen, and its axes row by row."""
    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots(rows, columns, squeeze=False, **options)
    return figure, list(axes.flat)


def save(figure: Figure, path: Path) -> None:
    """Write a PNG without the date or version of what wrote it, so that equal runs give equal files."""
    with warnings.catch_warnings():
        # A glyph missing from the font is drawn as a box; that is no reason to fail a run.
        warnings.simplefilter("ignore")
        figure.savefig(path, format="png", metadata={"Software": None})


def titled(figure: Figure, question: str, subtitle: str = "") -> None:
    """Put the question over the figure, and what was run in smaller print below it."""
    width = int(9.5 * figure.get_figwidth())
    figure.suptitle(fill(question, width), x=0.01, ha="left", fontsize=13, fontweight="bold")
    if subtitle:
        lines = [fill(line, int(13.5 * figure.get_figwidth())) for line in subtitle.splitlines()]
        figure.supxlabel("\n".join(lines), x=0.01, ha="left", fontsize=8.5, color=GREY, linespacing=1.4)


def counts(axis: Any) -> None:
    """Number an axis of whole numbers with 1,234 below ten thousand, and 12 k, 3.4 M above."""
    short = EngFormatter(sep=" ")
    axis.set_major_locator(MaxNLocator(6, integer=True, min_n_ticks=1))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}" if abs(value) < 1e4 else short(value)))


def plain_log(axis: Any) -> None:
    """Number a log axis 0.1, 1, 1,000; between the decades too where it spans few of them."""
    low, high = axis.get_view_interval()
    axis.set_major_formatter(lambda value, _: _plain(value))
    axis.set_minor_formatter((lambda value, _: _two_or_five(value)) if high < 100 * low else NullFormatter())


def _plain(value: float) -> str:
    return f"{value:,.6g}"


def _two_or_five(value: float) -> str:
    return _plain(value) if f"{value:.0e}"[0] in "25" else ""


def time_scale(span_s: float) -> tuple[float, str]:
    """What to divide seconds by, and the unit's name, for an axis that spans ``span_s``.

    >>> time_scale(90.0), time_scale(4000.0), time_scale(0.05)
    ((1.0, 's'), (60.0, 'min'), (0.001, 'ms'))
    """
    for limit, scale, unit in ((0.5, 1e-3, "ms"), (1_200.0, 1.0, "s"), (36_000.0, 60.0, "min")):
        if span_s < limit:
            return scale, unit
    return 3600.0, "h"


def ecdf(values: NDArray[np.float64], points: int = 2000) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The empirical distribution of the numbers among ``values``, from share 0 on, thinned to ``points``."""
    ordered = np.sort(values[np.isfinite(values)])
    if not len(ordered):
        return ordered, ordered
    share = np.arange(1, len(ordered) + 1) / len(ordered)
    if len(ordered) > points:
        keep = np.unique(np.linspace(0, len(ordered) - 1, points).astype(np.int64))
        ordered, share = ordered[keep], share[keep]
    return np.append(ordered[:1], ordered), np.append(0.0, share)


def legend_above(axis: Axes) -> None:
    """A legend over the axes, where no curve runs."""
    entries = len(axis.get_legend_handles_labels()[1])
    axis.legend(loc="lower right", bbox_to_anchor=(1.0, 0.99), ncols=max(entries, 1), borderaxespad=0.1)
