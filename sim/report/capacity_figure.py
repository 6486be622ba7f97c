"""The knee: each target's quantity against the load, a line per variant, the bound across."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from sim.report.style import CYCLE, DASHES, GREY, legend_above, new_figure, plain_log, save, styled, titled
from sim.search import Knob, Target
from sim.sweeps import Row

LEGEND = "circle: stable, square: backlogged, cross: overloaded, diamond: too short to tell"
MARKS = {"stable": "o", "backlogged": "s", "overloaded": "x", "too short to tell": "d"}


def write_capacity_figure(
    path: Path, knob: Knob, targets: Sequence[Target], rows: Mapping[str, Row], question: str, subtitle: str
) -> None:
    """Draw the search into the PNG at ``path``."""
    with styled():
        save(capacity_figure(knob, targets, rows, question, subtitle), path)


def capacity_figure(
    knob: Knob, targets: Sequence[Target], rows: Mapping[str, Row], question: str, subtitle: str
) -> Figure:
    """A panel per target. Marks say how a run kept up: circle stable, square backlogged, cross overloaded."""
    figure, axes = new_figure(8, 1.2 + 3.4 * len(targets), len(targets), 1, sharex=True)
    titled(
        figure,
        question,
        f"{subtitle}\ncircle: stable, square: backlogged, cross: overloaded, diamond: too short to tell",
    )
    for place, (axis, target) in enumerate(zip(axes, targets, strict=True)):
        for i, (name, row) in enumerate(rows.items()):
            _variant(axis, place, name, row, i)
        drawn = [number for row in rows.values() for p in row.get("probes", ()) if (number := p["numbers"][place])]
        axis.axhline(target.bound, color=GREY, linestyle=":", linewidth=1.2, label=f"target {target.bound:g}")
        if drawn and min(drawn) > 0:
            axis.set_yscale("log")
            plain_log(axis.yaxis)
        axis.set_ylabel(
            f"{target.metric.removesuffix('_s')} {target.statistic} (s)" if target.statistic else target.name
        )
        legend_above(axis)
    axes[-1].set_xscale("log")
    plain_log(axes[-1].xaxis)
    axes[-1].set_xlabel(f"{knob.name} ({knob.unit})")
    return figure


def _variant(axis: Axes, place: int, name: str, row: Row, number: int) -> None:
    probes = row.get("probes", [])
    found = sorted(
        (probe["value"], probe["numbers"][place], probe["verdict"])
        for probe in probes
        if probe["seed"] == probes[0]["seed"] and probe["numbers"][place] is not None
    )
    if not found:
        return
    colour = CYCLE[number % len(CYCLE)]
    loads, values, _ = zip(*found, strict=True)
    limit = row["values"].get("limit")
    label = name if limit is None else f"{name}: {limit:.3g}"
    if limit is not None:
        axis.axvspan(
            row["values"]["limit.lowest"], row["values"]["limit.highest"], color=colour, alpha=0.12, linewidth=0
        )
    axis.plot(loads, values, color=colour, linestyle=DASHES[number % len(DASHES)], linewidth=1.6, label=label)
    for verdict, mark in MARKS.items():
        mine = [(load, value) for load, value, said in found if said == verdict]
        if mine:
            axis.plot(*zip(*mine, strict=True), mark, color=colour, ms=5)
    if limit is not None:
        axis.axvline(limit, color=colour, linewidth=0.8, alpha=0.6)
