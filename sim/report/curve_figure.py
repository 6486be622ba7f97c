"""The figure of ``curve``: what a request costs and how many fit, against its length."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from sim.capacity import CapacityCurve
from sim.report.style import (
    BLUE,
    GREEN,
    GREY,
    ORANGE,
    VERMILION,
    legend_above,
    new_figure,
    plain_log,
    save,
    styled,
    titled,
)
from sim.units import format_bytes


def write_curve_figure(path: Path, curve: CapacityCurve, subtitle: str) -> None:
    """Draw the curve into the PNG at ``path``."""
    with styled():
        save(curve_figure(curve, subtitle), path)


def curve_figure(curve: CapacityCurve, subtitle: str) -> Figure:
    """Four panels over request length: blocks, bytes per token, requests that fit, saving."""
    figure, axes = new_figure(10, 7.2, 2, 2, sharex=True)
    titled(figure, "What does a request of a given length cost, and how many fit?", subtitle)
    blocks, per_token, fit, saving = axes
    for name, colour, dash in (("resident", BLUE, "-"), ("peak", ORANGE, "--"), ("admission", VERMILION, ":")):
        _line(blocks, curve, f"{name}_blocks", colour, dash, name)
    blocks.set(ylabel=f"blocks a request takes ({format_bytes(curve.hybrid.block_bytes)} each)", yscale="log")
    _pair(per_token, curve, "kv_bytes_per_token", scale=1024)
    per_token.set(ylabel="KV cache per token, resident (KiB)")
    per_token.set_ylim(bottom=0)
    _pair(fit, curve, "max_concurrency")
    fit.set(ylabel="requests at once (vLLM's formula)", yscale="log")
    _line(saving, curve, "saving", GREEN, "-", "saved by hybrid", scale=0.01)
    saving.axhline(0, color=GREY, linewidth=0.8)
    saving.set(ylabel="resident bytes saved (%)")
    for axis, breaks in ((fit, curve.break_even_tokens), (saving, curve.break_even_resident_tokens)):
        _break_even(axis, breaks)
    for axis in axes:
        _length_axis(axis, [point.tokens for point in curve.points])
        if axis.get_legend_handles_labels()[1]:
            legend_above(axis)
    for axis in (fit, saving):
        axis.set_xlabel("request length (tokens)")
    return figure


def _line(
    axis: Axes, curve: CapacityCurve, field: str, colour: str, dash: Any, label: str, *, scale: float = 1.0
) -> None:
    points = [(point.tokens, value / scale) for point in curve.points if (value := getattr(point, field)) is not None]
    if points:
        lengths, values = zip(*points, strict=True)
        marker = "o" if len(points) < 20 else None
        axis.plot(lengths, values, color=colour, linestyle=dash, label=label, linewidth=1.8, marker=marker, ms=4)


def _pair(axis: Axes, curve: CapacityCurve, field: str, *, scale: float = 1.0) -> None:
    _line(axis, curve, field, BLUE, "-", "hybrid", scale=scale)
    _line(axis, curve, f"all_full_{field}", ORANGE, "--", "all-full", scale=scale)


def _break_even(axis: Axes, tokens: int | None) -> None:
    if tokens is not None:
        axis.axvline(tokens, color=GREY, linestyle=":", linewidth=1.2, label=f"break-even: {tokens:,} tokens")


def _length_axis(axis: Axes, lengths: Sequence[int]) -> None:
    axis.set_xscale("log", base=2)
    axis.xaxis.set_major_formatter(lambda value, _: f"{value:,.0f}" if value < 10_000 else f"{value / 1024:,.0f} Ki")
    axis.tick_params(axis="x", labelsize=9)
    if len(lengths) > 1:
        axis.set_xlim(lengths[0] / 1.1, lengths[-1] * 1.1)
    if axis.get_yscale() == "log":
        plain_log(axis.yaxis)
