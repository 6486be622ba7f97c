"""The figure of a check on a device: step times predicted and measured, and what windows save."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray

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

Floats = NDArray[np.float64]
_MARKS = (("decode only", BLUE, "o"), ("prefill only", ORANGE, "s"), ("mixed", GREEN, "^"))


def write_step_time_figure(
    path: Path,
    kinds: Sequence[str],
    predicted_s: Floats,
    measured_s: Floats,
    savings: Sequence[tuple[int, float, float]],
    *,
    subtitle: str,
) -> None:
    """Draw the PNG at ``path``: one point per step with its class, one line per context of ``savings``.

    ``savings`` are (context in tokens, measured, simulated), the latter two in percent of the all-full step.
    """
    with styled():
        save(step_time_figure(kinds, predicted_s, measured_s, savings, subtitle), path)


def step_time_figure(
    kinds: Sequence[str],
    predicted_s: Floats,
    measured_s: Floats,
    savings: Sequence[tuple[int, float, float]],
    subtitle: str,
) -> Figure:
    """Predicted against measured on the left; on the right, where there are windows, the time they save."""
    figure, axes = new_figure(10 if savings else 6, 4.8, 1, 2 if savings else 1)
    titled(figure, "Does a step take as long as the simulator says?", subtitle)
    _against(axes[0], np.array(kinds), 1e3 * predicted_s, 1e3 * measured_s)
    if savings:
        _saved(axes[1], savings)
    return figure


def _against(axis: Axes, kinds: NDArray[np.str_], predicted: Floats, measured: Floats) -> None:
    axis.set_xscale("log")
    axis.set_yscale("log")
    both = (
        np.concatenate([predicted, measured, [1e-3]]) if not len(predicted) else np.concatenate([predicted, measured])
    )
    ends = np.array([both.min() / 1.3, both.max() * 1.3])
    axis.plot(ends, ends, color=GREY, linewidth=1, label="equal")
    axis.fill_between(ends, ends / 1.15, ends * 1.15, color=GREY, alpha=0.15, linewidth=0, label="within 15 %")
    for name, colour, mark in _MARKS:
        chosen = kinds == name
        if chosen.any():
            axis.plot(
                measured[chosen], predicted[chosen], mark, color=colour, alpha=0.75, label=f"{name} ({chosen.sum()})"
            )
    axis.set(xlabel="measured (ms)", ylabel="predicted (ms)", xlim=tuple(ends), ylim=tuple(ends))
    plain_log(axis.xaxis)
    plain_log(axis.yaxis)
    axis.legend(loc="upper left", fontsize=8.5)


def _saved(axis: Axes, savings: Sequence[tuple[int, float, float]]) -> None:
    context, measured, simulated = (np.array(column, np.float64) for column in zip(*savings, strict=True))
    axis.plot(context, measured, "o-", color=VERMILION, label="measured")
    axis.plot(context, simulated, "s--", color=BLUE, label="simulated")
    axis.axhline(0, color=GREY, linewidth=1)
    axis.set_xscale("log", base=2)
    axis.set_xticks(context, [f"{int(tokens):,}" for tokens in context])
    axis.set(xlabel="context of each request (tokens)", ylabel="time saved by windows, decode step (%)")
    legend_above(axis)
