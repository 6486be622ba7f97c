"""What became of the prompt tokens: hits, and what kept the rest from being hit, over the run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from sim.explanation import CAUSES
from sim.report.style import BLUE, GREEN, ORANGE, PURPLE, SKY, VERMILION, counts, new_figure, time_scale, titled

_LOOKS = ((VERMILION, "xx"), (ORANGE, "//"), (BLUE, ".."), (PURPLE, "\\\\"), (SKY, "++"))
SLICES = 60


def lost_figure(requests: Mapping[str, Any], subtitle: str) -> Figure:
    """Of an explained run: per slice of time, what became of the prompts of requests first admitted in it."""
    figure, (axis,) = new_figure(9, 4.6)
    titled(figure, "What did the prefix cache give, and what kept it from giving more?", subtitle)
    first = np.asarray(requests["first_scheduled_s"], np.float64)
    scale, unit = time_scale(float(np.ptp(first)) if len(first) else 0.0)
    time = (first - np.min(first, initial=np.inf)) / scale if len(first) else first
    edges = np.linspace(0.0, float(np.max(time, initial=0.0)) or 1.0, SLICES + 1)
    below = np.zeros(SLICES)
    for name, column, colour, hatch in _layers(requests):
        amount, _ = np.histogram(time, bins=edges, weights=np.asarray(column, np.float64))
        if amount.any():
            look: dict[str, Any] = {"facecolor": colour, "edgecolor": "white", "hatch": hatch, "linewidth": 0}
            axis.bar(edges[:-1], amount, np.diff(edges), below, align="edge", label=name, **look)
            below += amount
    axis.set(xlabel=f"time since the first admission ({unit})", ylabel="prompt tokens per slice", xlim=(0, edges[-1]))
    counts(axis.yaxis)
    if below.any():
        axis.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0), fontsize=8.5)
    return figure


def _layers(requests: Mapping[str, Any]) -> list[tuple[str, Any, str, str]]:
    """Name, tokens per request, colour and hatch of each layer, from below."""
    lost = {cause: np.asarray(requests[f"lost_{cause}_tokens"]) for cause in CAUSES}
    cached = np.asarray(requests["cached_tokens"])
    new = np.asarray(requests["prompt_tokens"]) - cached - sum(lost.values())
    layers = [("hit", cached, GREEN, "")]
    layers += [
        (f"lost: {name}", lost[cause], *_LOOKS[i % len(_LOOKS)]) for i, (cause, name) in enumerate(CAUSES.items())
    ]
    return [*layers, ("not seen before", np.maximum(new, 0), "#CFCFCF", "")]
