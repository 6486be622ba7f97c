"""A figure of a sweep: one column against another, a line per value of a third."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from sim.report.style import CYCLE, DASHES, legend_above, new_figure, plain_log, save, styled, titled
from sim.report.sweep_tables import plain_value, require_column


def write_sweep_figure(path: Path, columns: Mapping[str, Any], plot: Sequence[str], question: str) -> None:
    """Draw columns ``plot`` = (x, y) or (x, y, series) into the PNG at ``path``."""
    with styled():
        save(sweep_figure(columns, plot, question), path)


def sweep_figure(columns: Mapping[str, Any], plot: Sequence[str], question: str) -> Figure:
    """One panel. A column of text is drawn at the places of its values; a wide span gets a logarithmic axis.

    Raises InputError for a column that is not there.
    """
    for name in plot:
        require_column(name, set(columns))
    figure, (axis,) = new_figure(8, 4.8)
    titled(figure, question)
    x, labels = _places(columns[plot[0]])
    y, _ = _places(columns[plot[1]])
    series = [plain_value(value) for value in _plain(columns[plot[2]])] if len(plot) > 2 else [""] * len(x)
    for i, name in enumerate(dict.fromkeys(series)):
        mine = np.array([s == name for s in series]) & np.isfinite(y)
        order = np.argsort(x[mine], kind="stable")
        axis.plot(
            x[mine][order],
            y[mine][order],
            color=CYCLE[i % len(CYCLE)],
            linestyle=DASHES[i % len(DASHES)],
            marker="o",
            ms=4,
            linewidth=1.8,
            label=f"{plot[2]} = {name}" if name else None,
        )
    if labels is not None:
        axis.set_xticks(range(len(labels)), labels)
    elif _wide(x):
        axis.set_xscale("log")
        plain_log(axis.xaxis)
    if _wide(y[np.isfinite(y)]):
        axis.set_yscale("log")
        plain_log(axis.yaxis)
    else:
        axis.set_ylim(bottom=0)
    axis.set(xlabel=plot[0], ylabel=plot[1])
    if len(plot) > 2:
        legend_above(axis)
    return figure


def _plain(values: Any) -> list[Any]:
    return values.tolist() if isinstance(values, np.ndarray) else list(values)


def _places(values: Any) -> tuple[Any, list[str] | None]:
    """Numbers as they are; text as the place of its value among the different ones, with their names."""
    if isinstance(values, np.ndarray):
        return values.astype(np.float64), None
    names = [plain_value(value) for value in values]
    kinds = list(dict.fromkeys(names))
    return np.array([float(kinds.index(name)) for name in names]), kinds


def _wide(values: Any) -> bool:
    return bool(values.size and values.min() > 0 and values.max() > 20 * values.min())
