"""Charts as SVG that a page's style sheet colours and its script reads values from.

A plotting library's own script weighs one to four megabytes in every page; this one draws three kinds of charts.
Colours are classes (``c0`` … ``c5``), so that a dark page and a printed one have their own. Each chart carries the
numbers drawn as JSON, and the script shows those under the pointer.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sim.report.page.scale import Scale, short, span

WIDTH, HEIGHT = 480, 270
LEFT, RIGHT, TOP, BOTTOM = 50, 14, 12, 42
DIGITS = 5


@dataclass(frozen=True, slots=True)
class Series:
    """One curve: ``y`` over ``x``, a band from ``low`` to ``high`` about it, drawn in steps or from point to point.

    ``colour`` numbers the page's palette; a ``filled`` series is an area down to ``low``, a ``thin`` one a finer line.
    """

    name: str
    colour: int
    x: Sequence[float] | NDArray[Any]
    y: Sequence[float] | NDArray[Any]
    low: Sequence[float] | NDArray[Any] | None = None
    high: Sequence[float] | NDArray[Any] | None = None
    steps: bool = True
    filled: bool = False
    shown: Sequence[float] | NDArray[Any] | None = None
    thin: bool = False

    @property
    def values(self) -> Sequence[float] | NDArray[Any]:
        """What the pointer reads: ``shown``, where that is not what is drawn (a layer of a stack)."""
        return self.y if self.shown is None else self.shown

    @property
    def look(self) -> str:
        """The classes of its curve and of its entry in the key."""
        return f"c{self.colour}{' thin' if self.thin else ''}"


@dataclass(frozen=True, slots=True)
class Chart:
    """A titled chart. ``marks`` are instants on the x axis, with a name."""

    title: str
    x_label: str
    y_label: str
    series: Sequence[Series]
    log_x: bool = False
    y_top: float | None = None
    marks: tuple[str, Sequence[float]] | None = None
    note: str = ""


def chart_html(chart: Chart) -> str:
    """The chart as an HTML figure: title, key, drawing, note."""
    if not any(len(series.x) for series in chart.series):
        return _figure(chart, f'<p class="none">{escape("Nothing to draw: no request or step has such a value.")}</p>')
    x = _x_scale(chart)
    y = _y_scale(chart)
    parts = [_grid(chart, x, y)]
    parts += [_area(series, x, y) for series in chart.series if series.filled]
    parts += [_band(series, x, y) for series in chart.series if series.low is not None and not series.filled]
    parts += [_line(series, x, y) for series in chart.series if not series.filled]
    if chart.marks:
        parts.append(_marks(chart.marks[1], x, y))
    attributes = f'viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escape(chart.title)}"'
    drawing = f'<svg {attributes}>{"".join(parts)}<line class="rule" y1="{TOP}" y2="{HEIGHT - BOTTOM}"/></svg>'
    return _figure(chart, _key(chart) + drawing + _data(chart, x))


def _x_scale(chart: Chart) -> Scale:
    values = [float(edge) for series in chart.series if len(series.x) for edge in _ends(series.x, log=chart.log_x)]
    low, high = span(values, log=chart.log_x)
    return Scale(low, high, LEFT, WIDTH - RIGHT, chart.log_x)


def _ends(values: Sequence[float] | NDArray[Any], *, log: bool) -> tuple[float, float]:
    column = np.asarray(values, np.float64)
    column = column[column > 0] if log else column
    return (float(column.min()), float(column.max())) if len(column) else (1.0, 1.0)


def _y_scale(chart: Chart) -> Scale:
    columns = [column for series in chart.series for column in (series.y, series.high) if column is not None]
    tops = [edge for column in columns if len(column) for edge in _ends(column, log=False)]
    low, high = span(tops, log=False)
    return Scale(low, 1.04 * high if chart.y_top is None else chart.y_top, HEIGHT - BOTTOM, TOP)


def _grid(chart: Chart, x: Scale, y: Scale) -> str:
    parts = []
    for tick in y.ticks():
        at = y(tick)
        parts.append(f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{at}" y2="{at}"/>')
        parts.append(f'<text class="tick end" x="{LEFT - 5}" y="{at + 4}">{short(tick)}</text>')
    for tick in x.ticks():
        at = x(tick)
        parts.append(f'<line class="axis" x1="{at}" x2="{at}" y1="{HEIGHT - BOTTOM}" y2="{HEIGHT - BOTTOM + 4}"/>')
        parts.append(
            f'<text class="tick" x="{at}" y="{HEIGHT - BOTTOM + 16}" text-anchor="middle">{short(tick)}</text>'
        )
    bottom = HEIGHT - BOTTOM
    parts.append(f'<line class="axis" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{bottom}" y2="{bottom}"/>')
    middle = (LEFT + WIDTH - RIGHT) / 2
    parts.append(f'<text class="middle" x="{middle}" y="{HEIGHT - 8}">{escape(chart.x_label)}</text>')
    centre = (TOP + bottom) / 2
    turned = f'transform="translate(11 {centre}) rotate(-90)"'
    parts.append(f'<text class="middle" {turned}>{escape(chart.y_label)}</text>')
    return "".join(parts)


def _points(x: Sequence[float] | NDArray[Any], y: Any, across: Scale, up: Scale, *, steps: bool) -> list[str]:
    points: list[str] = []
    last: float | None = None
    for one, other in zip(np.asarray(x).tolist(), np.asarray(y).tolist(), strict=True):
        right, above = across(one), up(other)
        if steps and last is not None:
            points.append(f"{right},{last}")
        points.append(f"{right},{above}")
        last = above
    return points


def _line(series: Series, x: Scale, y: Scale) -> str:
    points = _points(series.x, series.y, x, y, steps=series.steps)
    return f'<polyline class="curve {series.look}" points="{" ".join(points)}"/>'


def _band(series: Series, x: Scale, y: Scale) -> str:
    above = _points(series.x, series.high, x, y, steps=series.steps)
    below = _points(series.x, series.low, x, y, steps=series.steps)
    return f'<polygon class="band c{series.colour}" points="{" ".join([*above, *reversed(below)])}"/>'


def _area(series: Series, x: Scale, y: Scale) -> str:
    above = _points(series.x, series.y, x, y, steps=series.steps)
    below = _points(series.x, series.low, x, y, steps=series.steps)
    return f'<polygon class="area c{series.colour}" points="{" ".join([*above, *reversed(below)])}"/>'


def _marks(instants: Sequence[float], x: Scale, y: Scale) -> str:
    bottom = y.start
    lines = [f'<line class="mark" x1="{x(at)}" x2="{x(at)}" y1="{bottom}" y2="{bottom - 12}"/>' for at in instants]
    return "".join(lines)


def _key(chart: Chart) -> str:
    entries = [
        f'<span class="{series.look}{" filled" if series.filled else ""}"><i></i>{escape(series.name)}</span>'
        for series in chart.series
    ]
    if chart.marks and len(chart.marks[1]):
        entries.append(f'<span class="mark"><i></i>{escape(chart.marks[0])}</span>')
    return f'<div class="key">{"".join(entries)}</div>'


def _figure(chart: Chart, inside: str) -> str:
    note = f'<p class="note">{escape(chart.note)}</p>' if chart.note else ""
    return f'<figure class="chart"><figcaption>{escape(chart.title)}</figcaption>{inside}{note}</figure>'


def _data(chart: Chart, x: Scale) -> str:
    """What the pointer reads, and how a place on the drawing becomes a number."""
    series = [{"name": series.name, "x": _rounded(series.x), "y": _rounded(series.values)} for series in chart.series]
    value = {
        "x": chart.x_label,
        "y": chart.y_label,
        "low": x.low,
        "high": x.high,
        "left": x.start,
        "right": x.end,
        "width": WIDTH,
        "log": x.log,
        "series": series,
    }
    return f'<script type="application/json">{embedded_json(value)}</script>'


def _rounded(values: Sequence[float] | NDArray[Any]) -> list[float]:
    return [float(f"{value:.{DIGITS}g}") for value in np.asarray(values, np.float64).tolist()]


def embedded_json(value: Any) -> str:
    r"""JSON that cannot end the script element it stands in.

    >>> print(embedded_json({"name": "</script>"}))
    {"name":"\u003c/script>"}
    """
    text = json.dumps(value, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    return text.replace("<", "\\u003c")
