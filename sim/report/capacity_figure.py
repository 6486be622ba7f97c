"""The knee: each target's quantity against the load, a line per variant, the bound across."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from sim.report.capacity_tables import times_class
from sim.report.style import CYCLE, DASHES, GREY, legend_above, new_figure, plain_log, save, styled, titled
from sim.report.sweep_labels import knob_label, unit_of
from sim.search import Knob, Target
from sim.sweeps import Row

LEGEND = "circle: stable, square: backlogged, cross: overloaded, diamond: too short to tell"
NAMES = {
    "ttft_s": "time to first token",
    "tpot_s": "time per output token",
    "e2e_s": "time from sent to finished",
    "queue_s": "time in the queue",
}
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
    times = times_class(rows)
    titled(
        figure,
        question,
        "\n".join(filter(None, (subtitle, times and f"times: {times}", LEGEND))),
    )
    for place, (axis, target) in enumerate(zip(axes, targets, strict=True)):
        for i, (name, row) in enumerate(rows.items()):
            _variant(axis, place, name, row, i, knob.unit)
        unit = unit_of(target.name) or ""
        bound = f"target: {target.bound:g} {unit if target.statistic else ''}".rstrip()
        axis.axhline(target.bound, color=GREY, linestyle=":", linewidth=1.2, label=bound)
        _scale(axis, [probe["numbers"][place] for row in rows.values() for probe in row.get("probes", ())])
        quantity = f"{NAMES[target.metric]}, {target.statistic}" if target.statistic else target.name
        axis.set_ylabel(f"{quantity} ({unit})" if unit else quantity)
        legend_above(axis)
    axes[-1].set_xscale("log")
    plain_log(axes[-1].xaxis)
    axes[-1].set_xlabel(knob_label(knob))
    return figure


def _scale(axis: Axes, numbers: Sequence[float | None]) -> None:
    """A log axis, or one from zero where there are zeros."""
    known = [number for number in numbers if number is not None]
    if known and min(known) > 0:
        axis.set_yscale("log")
        plain_log(axis.yaxis)
    elif known:
        axis.set_ylim(0, 1.08 * axis.get_ylim()[1])


def _variant(axis: Axes, place: int, name: str, row: Row, number: int, unit: str) -> None:
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
    label = name if limit is None else f"{name}: {limit:.3g} {unit}"
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
