"""The figures of one run: the pool over time, the latencies, and what the prefix cache gave."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray

from sim.report.block_figure import block_map_figure, requests_figure
from sim.report.lost_figure import lost_figure
from sim.report.pool_figure import pool_figure
from sim.report.roles import PREFILL
from sim.report.style import (
    BLUE,
    GREEN,
    GREY,
    ORANGE,
    VERMILION,
    counts,
    ecdf,
    legend_above,
    new_figure,
    plain_log,
    save,
    styled,
    time_scale,
    titled,
)
from sim.report.tables import seconds
from sim.report.timeline import Band, Timelines, band, timelines
from sim.story import BlockMap

Columns = Mapping[str, Any]


class Drawn(NamedTuple):
    """What the figures of a run are drawn from: its columns, and what is said around them.

    ``latency_class`` says how far its times can be trusted; ``labels`` names the kind of each KV cache group,
    ``roles`` the role of each replica.
    """

    requests: Columns
    steps: Columns
    num_blocks: int
    subtitle: str
    latency_class: str
    labels: Sequence[str] = ()
    blocks: BlockMap | None = None
    roles: Sequence[str] = ()


def run_figures(run: Drawn) -> dict[str, Figure]:
    """The figures of a run by name; an explained run has more of them, one of a small pool a map of its blocks."""
    with styled():
        figures = {
            "memory": memory_figure(run.steps, run.num_blocks, run.subtitle, run.roles),
            "requests": requests_figure(run.requests, run.steps, run.subtitle),
            "latency": latency_figure(run.requests, run.subtitle, run.latency_class),
            "prefix_hits": prefix_figure(run.requests, run.subtitle),
        }
        if "free_bytes" in run.steps:
            figures["pool"] = pool_figure(run.steps, run.labels, run.subtitle)
            figures["lost_hits"] = lost_figure(run.requests, run.subtitle)
        if run.blocks is not None and run.blocks.codes.size:
            figures["blocks"] = block_map_figure(run.blocks, run.labels, run.subtitle)
    return figures


def write_run_figures(folder: Path, run: Drawn) -> list[Path]:
    """Draw every figure into ``folder``; returns their paths."""
    folder.mkdir(parents=True, exist_ok=True)
    figures = run_figures(run)
    with styled():
        for name, figure in figures.items():
            save(figure, folder / f"{name}.png")
    return [folder / f"{name}.png" for name in figures]


def memory_figure(steps: Columns, num_blocks: int, subtitle: str, roles: Sequence[str] = ()) -> Figure:
    """Over time: blocks in use, requests running with preemptions marked, requests waiting.

    Of several replicas the mean and range of all; ``roles``: of each replica, those of one role are drawn together.
    """
    figure, axes = new_figure(9, 6.4, 3, 1, sharex=True, height_ratios=(2, 1, 1))
    titled(figure, "Does the KV cache fill up, and who waits for it?", subtitle)
    blocks, running, waiting = axes
    over_time = timelines(steps, roles)
    scale, unit = time_scale(over_time[0].end_s)
    pool = num_blocks - 1
    for axis, name, what, colour in (
        (blocks, "used_blocks", "in use (mean, range)", BLUE),
        (running, "running_requests", "running", GREEN),
        (waiting, "waiting_requests", "waiting", ORANGE),
    ):
        _draw_roles(axis, over_time, steps[name], scale, colour, what)
    blocks.axhline(pool, color=GREY, linestyle="--", linewidth=1, label=f"pool: {pool:,} blocks")
    preempted = np.asarray(steps["preempted_requests"])
    if preempted.any():
        at = np.concatenate([of_role.instants(preempted) for of_role in over_time]) / scale
        label = f"preemptions ({int(preempted.sum()):,})"
        running.plot(at, np.zeros(len(at)), "|", color=VERMILION, markersize=14, label=label, clip_on=False, zorder=5)
    waiting.set_xlabel(f"time since the first step ({unit})")
    several = " per replica" if sum(len(of_role.engines) for of_role in over_time) > 1 else ""
    for axis, name in zip(axes, ("KV cache blocks", "requests", "requests"), strict=True):
        axis.set_ylabel(name + several)
        axis.set_ylim(0, 1.08 * max(pool if axis is blocks else axis.get_ylim()[1], 1))
        counts(axis.yaxis)
        legend_above(axis)
    figure.align_ylabels(axes)
    return figure


def latency_figure(requests: Columns, subtitle: str, latency_class: str) -> Figure:
    """The distributions of time to first token and time per output token, with their percentiles."""
    figure, axes = new_figure(9, 4.4, 1, 2, sharey=True)
    titled(figure, "How long do requests wait, and how fast do tokens come?", f"{subtitle}\n{latency_class}")
    for axis, name, label, colour in (
        (axes[0], "ttft_s", "time to first token", BLUE),
        (axes[1], "tpot_s", "time per output token", VERMILION),
    ):
        distribution(axis, np.asarray(requests[name], np.float64), label, colour)
    axes[0].set_ylabel("share of requests at or below")
    return figure


def prefix_figure(requests: Columns, subtitle: str) -> Figure:
    """Prompt tokens taken from the cache: over time, and as a share of each request's prompt."""
    figure, (left, right) = new_figure(9, 4.2, 1, 2)
    titled(figure, "How much of the prompts came from the prefix cache?", subtitle)
    prompt, cached = (np.asarray(requests[name], np.float64) for name in ("prompt_tokens", "cached_tokens"))
    first = np.asarray(requests["first_scheduled_s"], np.float64)
    order = np.argsort(first, kind="stable")
    scale, unit = time_scale(float(np.ptp(first)) if len(first) else 0.0)
    time = (first[order] - first[order][:1]) / scale
    for values, label, colour in ((prompt, "prompt tokens admitted", GREY), (cached, "of which cached", GREEN)):
        total = band(time, np.cumsum(values[order]))
        left.plot(total.time, total.high, drawstyle="steps-post", color=colour, label=label)
    left.set(xlabel=f"time since the first admission ({unit})", ylabel="tokens, running total")
    left.set_ylim(bottom=0)
    counts(left.yaxis)
    legend_above(left)
    share = 100 * cached / np.maximum(prompt, 1)
    right.hist(share, bins=[5.0 * i for i in range(21)], color=GREEN, edgecolor="white")
    right.set(xlabel="share of the prompt cached (%)", ylabel="requests", xlim=(0, 100))
    counts(right.yaxis)
    hit = float(np.mean(cached > 0)) if len(cached) else 0.0
    overall = 100 * cached.sum() / max(prompt.sum(), 1.0)
    right.set_title(f"{overall:.1f} % of all prompt tokens; {100 * hit:.0f} % of requests hit")
    return figure


def distribution(
    axis: Axes,
    values_s: NDArray[np.float64],
    what: str,
    colour: str,
    *,
    name: str | None = None,
    dash: Any = "-",
    unit: str | None = None,
) -> None:
    """Draw an empirical distribution of times, in the ``unit`` (s, ms) that suits them unless one is given.

    Without a ``name`` for a legend its p50, p90 and p99 are marked.
    """
    numbers = values_s[np.isfinite(values_s)]
    unit = unit or ("ms" if len(numbers) and np.percentile(numbers, 90) < 1 else "s")
    scale = 1e-3 if unit == "ms" else 1.0
    axis.set(xlabel=f"{what} ({unit})", ylim=(0, 1.03))
    if not len(numbers):
        axis.text(0.5, 0.5, "no request has one", transform=axis.transAxes, ha="center", color=GREY)
        return
    x, share = ecdf(numbers / scale)
    axis.plot(x, share, drawstyle="steps-post", color=colour, linewidth=1.8, label=name, linestyle=dash)
    if name is None:
        time_axis(axis, x, room=1.45)
        _mark_percentiles(axis, numbers, scale, colour)


def time_axis(axis: Axes, times: NDArray[np.float64], room: float = 1.15) -> None:
    """A log axis for times that differ widely, one from zero otherwise; ``room`` to the right is for labels."""
    positive = times[times > 0]
    if len(positive) and positive.max() > 5 * positive.min():
        axis.set_xscale("log")
        margin = 1.15 if room < 1.3 else (positive.max() / positive.min()) ** 0.28
        axis.set_xlim(positive.min() / 1.15, positive.max() * margin)
    else:
        axis.set_xlim(0, room * float(positive.max(initial=1e-9)))
        axis.xaxis.set_major_locator(MaxNLocator(6))
    plain_log(axis.xaxis)


def _draw_roles(axis: Axes, over_time: Sequence[Timelines], values: Any, scale: float, colour: str, what: str) -> None:
    """Draw a series over time, of prefill replicas (dashed) and of those that decode apart."""
    for of_role in over_time:
        label = f"{of_role.role}: {what}" if of_role.role else what
        _draw_band(axis, of_role.band(values, scale), colour, label, "--" if of_role.role == PREFILL else "-")


def _draw_band(axis: Axes, slices: Band, colour: str, label: str, dash: Any = "-") -> None:
    """Draw a series over time: the mean as a line, lowest to highest as a band."""
    axis.fill_between(slices.time, slices.low, slices.high, step="post", color=colour, alpha=0.22, linewidth=0)
    axis.plot(
        slices.time, slices.mean, drawstyle="steps-post", color=colour, linewidth=1.5, linestyle=dash, label=label
    )


def _mark_percentiles(axis: Axes, numbers: NDArray[np.float64], scale: float, colour: str) -> None:
    """Labels stand below and to the right of their point, where a rising curve leaves room."""
    for percent in (50, 90, 99):
        at = float(np.percentile(numbers, percent))
        axis.plot([at / scale], [percent / 100], "o", color=colour, markersize=5)
        text = f"p{percent} {seconds(at)}"
        axis.annotate(text, (at / scale, percent / 100), xytext=(8, -4), textcoords="offset points", va="top")
