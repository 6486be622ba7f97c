"""The pool over time, stacked: what holds tokens, what is rounded off or padded, what is cached, what is free."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray

from sim.report.style import BLUE, GREEN, ORANGE, VERMILION, band, legend_above, new_figure, time_scale, titled
from sim.units import GIB

_LOOKS = {"live": (BLUE, ""), "rounding": (VERMILION, "xxxx"), "padding": (ORANGE, "////"), "cached": (GREEN, "....")}
"""In stacking order; hatches tell areas apart in a grey print."""
_MEANINGS = (
    "live: holds tokens or states of running requests; rounding: past a request's last token; "
    "padding: used by no layer;\ncached: free, but can still be hit; white: free and empty, or another kind's"
)


def pool_figure(steps: Mapping[str, Any], labels: Sequence[str], subtitle: str) -> Figure:
    """One stack for the whole pool, then one for each kind of group; ``labels`` names the kind of each group.

    Means over time; while the engine is idle, the pool is drawn as the last step left it.
    """
    kinds: list[str | None] = [None, *dict.fromkeys(labels)]
    panels = kinds if len(kinds) > 2 else kinds[:1]
    figure, axes = new_figure(9, 2.4 + 1.8 * len(panels), len(panels), 1, sharex=True)
    titled(figure, "What does every block of the KV cache hold?", f"{subtitle}\n{_MEANINGS}")
    start = np.asarray(steps["start_s"], np.float64)
    scale, unit = time_scale(float(np.ptp(start)) if len(start) else 0.0)
    time = (start - start[:1]) / scale
    pool = sum(float(np.asarray(steps[name])[:1].sum()) for name in steps if name.endswith("_bytes")) / GIB
    for axis, kind in zip(axes, panels, strict=True):
        groups = [number for number, label in enumerate(labels) if kind in (None, label)]
        _stack(axis, steps, time, groups)
        named = f"{kind or 'the whole pool'}, {len(groups)} group{'s' if len(groups) > 1 else ''}"
        axis.set_title(named, fontsize=10)
        axis.set_ylabel("GiB per GPU")
        axis.set_ylim(0, pool or 1)
    axes[-1].set_xlabel(f"time since the first step ({unit})")
    axes[-1].set_xlim(0, float(time[-1]) if len(time) > 1 else 1)
    legend_above(axes[0])
    return figure


def _stack(axis: Axes, steps: Mapping[str, Any], time: NDArray[np.float64], groups: Sequence[int]) -> None:
    """Stack the shares of some groups over time; what is left white up to the top is free, or another group's."""
    below = np.zeros(len(time))
    for share, (colour, hatch) in _LOOKS.items():
        above = below + sum(np.asarray(steps[f"group_{group}_{share}_bytes"], np.float64) for group in groups) / GIB
        low, high = band(time, below), band(time, above)
        look: dict[str, Any] = {"facecolor": colour, "edgecolor": "white", "hatch": hatch, "label": share}
        axis.fill_between(high.time, low.mean, high.mean, step="post", linewidth=0, **look)
        below = above
