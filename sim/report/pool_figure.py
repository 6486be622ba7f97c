"""The pool over time, stacked: what holds tokens, what is rounded off or padded, what is cached, what is free."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray

from sim.report.style import BLUE, GREEN, ORANGE, VERMILION, legend_above, new_figure, time_scale, titled
from sim.report.timeline import Timelines, timelines
from sim.units import GIB

_LOOKS = {"live": (BLUE, ""), "rounding": (VERMILION, "xxxx"), "padding": (ORANGE, "////"), "cached": (GREEN, "....")}
"""In stacking order; hatches tell areas apart in a grey print."""
_MEANINGS = (
    "live: holds tokens or states of running requests; rounding: past a request's last token; "
    "padding: used by no layer;\ncached: free, but can still be hit; white: free and empty, or another kind's"
)


def pool_figure(steps: Mapping[str, Any], labels: Sequence[str], subtitle: str) -> Figure:
    """One stack for the whole pool, then one for each kind of group; ``labels`` names the kind of each group.

    Means over time, and over the replicas; while an engine is idle, its pool is drawn as the last step left it.
    """
    kinds: list[str | None] = [None, *dict.fromkeys(labels)]
    panels = kinds if len(kinds) > 2 else kinds[:1]
    figure, axes = new_figure(9, 2.4 + 1.8 * len(panels), len(panels), 1, sharex=True)
    titled(figure, "What does every block of the KV cache hold?", f"{subtitle}\n{_MEANINGS}")
    (over_time,) = timelines(steps, idle=False)
    scale, unit = time_scale(over_time.end_s)
    pool = sum(float(np.asarray(steps[name])[:1].sum()) for name in steps if name.endswith("_bytes")) / GIB
    for axis, kind in zip(axes, panels, strict=True):
        groups = [number for number, label in enumerate(labels) if kind in (None, label)]
        _stack(axis, steps, over_time, scale, groups)
        named = f"{kind or 'the whole pool'}, {len(groups)} group{'s' if len(groups) > 1 else ''}"
        axis.set_title(named, fontsize=10)
        axis.set_ylabel("GiB per GPU")
        axis.set_ylim(0, pool or 1)
    axes[-1].set_xlabel(f"time since the first step ({unit})")
    axes[-1].set_xlim(0, over_time.end_s / scale or 1)
    legend_above(axes[0])
    return figure


def _stack(axis: Axes, steps: Mapping[str, Any], over_time: Timelines, scale: float, groups: Sequence[int]) -> None:
    """Stack the shares of some groups over time; what is left white up to the top is free, or another group's."""
    below: NDArray[np.float64] = np.zeros(len(steps["step"]))
    for share, (colour, hatch) in _LOOKS.items():
        above = below + sum(np.asarray(steps[f"group_{group}_{share}_bytes"], np.float64) for group in groups) / GIB
        low, high = over_time.band(below, scale), over_time.band(above, scale)
        look: dict[str, Any] = {"facecolor": colour, "edgecolor": "white", "hatch": hatch, "label": share}
        axis.fill_between(high.time, low.mean, high.mean, step="post", linewidth=0, **look)
        below = above
