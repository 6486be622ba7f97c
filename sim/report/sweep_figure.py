"""A figure of a sweep: one or several columns against another, a line per value of a third."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from textwrap import fill
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from sim.report.style import CYCLE, DASHES, GREY, new_figure, plain_log, save, styled, titled
from sim.report.sweep_labels import axis_label, unit_of
from sim.report.sweep_tables import columns_class, plain_value
from sim.sweeps import Sweep


def write_sweep_figure(path: Path, columns: Mapping[str, Any], sweep: Sweep) -> None:
    """Draw the columns the sweep asks for into the PNG at ``path``."""
    with styled():
        save(sweep_figure(columns, sweep), path)


def sweep_figure(columns: Mapping[str, Any], sweep: Sweep) -> Figure:
    """One panel of ``sweep.plot`` = (x, y) or (x, y, series); y may be several columns, as in ``hits+bound``.

    A column of text is drawn at the places of its values; a wide span gets a logarithmic axis. Colours tell series
    apart, dashes the columns of y; a column that is the same in all series is one grey line.
    """
    x_name, y_names = sweep.plot[0], sweep.plot[1].split("+")
    figure, (axis,) = new_figure(8, 4.8)
    times = columns_class(columns)
    titled(figure, sweep.question or sweep.name)
    axis.set_title(fill(f"times: {times}", 110) if times else "", fontsize=8.5, color=GREY)
    x, labels = _places(columns[x_name])
    ys = [_places(columns[name])[0] for name in y_names]
    values = [plain_value(value) for value in _plain(columns[sweep.plot[2]])] if len(sweep.plot) > 2 else [""] * len(x)
    for dash, y in enumerate(ys):
        _draw(axis, x, y, values, dash if len(ys) > 1 else None)
    _scales(axis, x, labels, np.concatenate(ys))
    axis.set(xlabel=axis_label(x_name, sweep), ylabel=fill(_y_label(y_names, sweep), 52))
    _legend(figure, sweep, list(dict.fromkeys(values)), y_names)
    return figure


def _y_label(names: Sequence[str], sweep: Sweep) -> str:
    """The name of one column; of several the unit they share, since the legend names them, or all their names."""
    units = {unit_of(name) for name in names}
    (unit, *others) = units
    return unit if len(names) > 1 and unit and not others else ", ".join(axis_label(name, sweep) for name in names)


def _draw(axis: Axes, x: Any, y: Any, values: list[str], dash: int | None) -> None:
    """A column of y: a line per value of the series, or one where they are all the same."""
    known = np.isfinite(y)
    lines = []
    for value in dict.fromkeys(values):
        mine = np.array([other == value for other in values]) & known
        order = np.argsort(x[mine], kind="stable")
        lines.append((x[mine][order], y[mine][order]))
    if dash is not None and len(lines) > 1 and len({(xs.tobytes(), ys.tobytes()) for xs, ys in lines}) == 1:
        axis.plot(*lines[0], color=GREY, linestyle=DASHES[dash % len(DASHES)], linewidth=1.8)
        return
    for i, (xs, ys) in enumerate(lines):
        style = DASHES[(i if dash is None else dash) % len(DASHES)]
        axis.plot(xs, ys, color=CYCLE[i % len(CYCLE)], linestyle=style, marker="o", ms=4, linewidth=1.8)


def _legend(figure: Figure, sweep: Sweep, values: list[str], y_names: list[str]) -> None:
    """What colours and dashes mean, below the panel."""
    handles = []
    if len(sweep.plot) > 2:
        for i, value in enumerate(values):
            dash = DASHES[0 if len(y_names) > 1 else i % len(DASHES)]
            label = f"{sweep.plot[2]} = {value}"
            handles.append(Line2D([], [], color=CYCLE[i % len(CYCLE)], linestyle=dash, marker="o", ms=4, label=label))
    if len(y_names) > 1:
        handles += [
            Line2D([], [], color=GREY, linestyle=DASHES[i % len(DASHES)], label=name) for i, name in enumerate(y_names)
        ]
    if handles:
        figure.legend(handles=handles, loc="outside lower left", ncols=2 if len(sweep.plot) > 2 else len(handles))


def _scales(axis: Axes, x: Any, labels: list[str] | None, y: Any) -> None:
    """The axes' scales, and names at the places of text."""
    if labels is not None:
        axis.set_xticks(range(len(labels)), labels)
    elif _wide(x):
        axis.set_xscale("log")
        plain_log(axis.xaxis)
    else:
        axis.xaxis.set_major_formatter("{x:,.6g}")
    if _wide(y[np.isfinite(y)]):
        axis.set_yscale("log")
        plain_log(axis.yaxis)
    else:
        axis.set_ylim(0, 1.08 * max(float(np.max(y, where=np.isfinite(y), initial=0.0)), 1e-9))


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
    return bool(values.size and values.min() > 0 and values.max() >= 16 * values.min())
