"""Block map and requests over time: who held which block when, and what each request was doing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import ListedColormap
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from numpy.typing import NDArray

from sim.report.style import CYCLE, GREEN, ORANGE, SKY, VERMILION, counts, new_figure, time_scale, titled
from sim.story.block_map import CACHED, BlockMap

_EMPTY, _CACHED = "#FFFFFF", "#D9D9D9"
MOST_REQUESTS = 120
"""Requests drawn at most; of more, equally many of each stretch."""


def block_map_figure(blocks: BlockMap, labels: Sequence[str], subtitle: str) -> Figure:
    """Block id over time, coloured by the group that holds the block; grey ones are free but can still be hit.

    ``labels`` names the kind of each group. A block keeps its row: a block is one id in all layers.
    """
    figure, (axis,) = new_figure(9, 5.4)
    titled(figure, "Which block is whose, and when?", subtitle)
    codes, times = blocks.codes, blocks.times_s
    if not codes.size:
        axis.text(0.5, 0.5, "the pool is too large to draw block by block", transform=axis.transAxes, ha="center")
        return figure
    scale, unit = time_scale(float(np.ptp(times)))
    colours = [_EMPTY, _CACHED, *(CYCLE[group % len(CYCLE)] for group in range(len(labels)))]
    # Steps last as long as they last: edges are their starts, and the last one is drawn as long as the one before.
    starts = (times - times[0]) / scale
    last = starts[-1] + (starts[-1] - starts[-2] if len(starts) > 1 else 1.0)
    edges = np.append(starts, max(last, starts[-1] + 1e-9))
    axis.pcolormesh(
        edges,
        np.arange(codes.shape[1] + 1),
        codes.T.astype(np.int16) - CACHED + 1,
        cmap=ListedColormap(colours),
        vmin=-0.5,
        vmax=len(colours) - 0.5,
        rasterized=True,
    )
    axis.set(xlabel=f"time since the first step ({unit})", ylabel="block id")
    axis.grid(visible=False)
    axis.invert_yaxis()
    counts(axis.yaxis)
    names = ["free and empty", "free, can still be hit", *(f"group {i}: {label}" for i, label in enumerate(labels))]
    key = [
        Patch(facecolor=colour, edgecolor="#888888", label=name) for colour, name in zip(colours, names, strict=True)
    ]
    axis.legend(handles=key, loc="upper left", bbox_to_anchor=(1.0, 1.0), fontsize=8.5)
    return figure


def requests_figure(requests: Mapping[str, Any], steps: Mapping[str, Any], subtitle: str) -> Figure:
    """Every request as a bar in order of arrival: waiting, prefill, decoding; those preempted are marked."""
    figure, (axis,) = new_figure(9, 5.4)
    titled(figure, "Who waits, who runs, and who is preempted?", subtitle)
    columns = ("arrival_s", "first_scheduled_s", "first_token_s", "finish_s")
    arrival, admitted, first, finish = (np.asarray(requests[name], np.float64) for name in columns)
    order = np.argsort(arrival, kind="stable")
    stride = max(1, -(-len(order) // MOST_REQUESTS))
    preempted = np.asarray(requests["preemptions"])[order] > 0
    drawn = order[(np.arange(len(order)) % stride == 0) | (preempted & (np.cumsum(preempted) <= MOST_REQUESTS))]
    start = float(np.min(arrival, initial=np.inf)) if len(arrival) else 0.0
    scale, unit = time_scale(float(np.max(finish, initial=start)) - start)
    rows = np.arange(len(drawn))
    for begin, end, colour, name in (
        (arrival, admitted, ORANGE, "waiting"),
        (admitted, first, SKY, "prefill, until decoding" if "prefill_replica" in requests else "prefill"),
        (first, finish, GREEN, "decoding"),
    ):
        left, width = (begin[drawn] - start) / scale, (end - begin)[drawn] / scale
        axis.barh(rows, width, left=left, height=0.9, color=colour, label=name, linewidth=0)
    _mark_preempted(axis, np.asarray(requests["preemptions"])[drawn], rows, (finish[drawn] - start) / scale)
    _mark_instants(axis, steps, start, scale)
    shown = "all" if stride == 1 else f"1 in {stride}, and those preempted"
    axis.set(xlabel=f"time since the first arrival ({unit})", ylabel=f"requests in order of arrival ({shown})")
    axis.invert_yaxis()
    axis.grid(visible=False, axis="y")
    counts(axis.yaxis)
    axis.legend(loc="lower right", bbox_to_anchor=(1.0, 1.0), ncols=5, fontsize=8.5)
    return figure


def _mark_preempted(axis: Axes, preemptions: NDArray[Any], rows: NDArray[Any], ends: NDArray[np.float64]) -> None:
    hit = preemptions > 0
    if hit.any():
        name = f"preempted ({int(preemptions.sum()):,} times)"
        axis.plot(ends[hit], rows[hit], "D", color=VERMILION, markersize=4, label=name, clip_on=False)


def _mark_instants(axis: Axes, steps: Mapping[str, Any], start: float, scale: float) -> None:
    at = np.asarray(steps["start_s"], np.float64)[np.asarray(steps["preempted_requests"]) > 0]
    if len(at):
        instants = np.unique((at - start) / scale)
        axis.plot(
            instants,
            np.full(len(instants), 1.0),
            "|",
            color=VERMILION,
            markersize=12,
            transform=axis.get_xaxis_transform(),
            label="steps that preempt",
            clip_on=False,
        )
