"""The figures of one run: the pool over time, the latencies, and what the prefix cache gave."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray

from sim.report.style import (
    BLUE,
    GREEN,
    GREY,
    ORANGE,
    PURPLE,
    VERMILION,
    counts,
    ecdf,
    envelope,
    new_figure,
    save,
    styled,
    time_scale,
    titled,
)

Columns = Mapping[str, Any]


def write_run_figures(
    folder: Path, requests: Columns, steps: Columns, *, num_blocks: int, subtitle: str, latency_class: str
) -> list[Path]:
    """Draw ``memory.png``, ``latency.png`` and ``prefix_hits.png`` into ``folder``; returns their paths.

    ``requests`` and ``steps`` are the columns of a result; ``latency_class`` says how far its times can be trusted.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with styled():
        figures = {
            "memory.png": memory_figure(steps, num_blocks, subtitle),
            "latency.png": latency_figure(requests, subtitle, latency_class),
            "prefix_hits.png": prefix_figure(requests, steps, subtitle),
        }
        for name, figure in figures.items():
            save(figure, folder / name)
    return [folder / name for name in figures]


def memory_figure(steps: Columns, num_blocks: int, subtitle: str) -> Figure:
    """Blocks in use over time above, requests running and waiting below, preemptions marked in both."""
    figure, (top, bottom) = new_figure(9, 5.4, 2, 1, sharex=True)
    titled(figure, "Does the KV cache fill up, and who waits for it?", subtitle)
    start, unit = _time(steps["start_s"])
    pool = num_blocks - 1
    time, low, high = envelope(start, np.asarray(steps["used_blocks"]))
    top.fill_between(time, 0, high, step="post", color=BLUE, alpha=0.18, linewidth=0)
    top.plot(time, high, drawstyle="steps-post", color=BLUE, linewidth=1.2, label="blocks in use")
    if low is not high:
        top.plot(time, low, drawstyle="steps-post", color=BLUE, linewidth=0.5, alpha=0.6)
    top.axhline(pool, color=GREY, linestyle="--", linewidth=1)
    top.annotate(
        f"pool: {pool:,} blocks", (0.995, pool), xycoords=("axes fraction", "data"), ha="right", va="bottom", color=GREY
    )
    top.set(ylabel="KV cache blocks", ylim=(0, pool * 1.13))
    counts(top.yaxis)
    _queue_lines(bottom, start, steps)
    bottom.set(xlabel=f"time since the first arrival ({unit})", ylabel="requests")
    bottom.set_ylim(bottom=0)
    counts(bottom.yaxis)
    _mark_preemptions((top, bottom), start, np.asarray(steps["preempted_requests"]))
    bottom.legend(loc="upper left", ncols=3)
    return figure


def latency_figure(requests: Columns, subtitle: str, latency_class: str) -> Figure:
    """The distributions of time to first token and time per output token, with their percentiles."""
    figure, axes = new_figure(9, 4.2, 1, 2, sharey=True)
    titled(figure, "How long do requests wait, and how fast do tokens come?", f"{subtitle}   ·   {latency_class}")
    names = (("ttft_s", "time to first token (s)", BLUE), ("tpot_s", "time per output token (ms)", ORANGE))
    for axis, (column, label, colour) in zip(axes, names, strict=True):
        scale = 1e3 if column == "tpot_s" else 1.0
        distribution(axis, np.asarray(requests[column], np.float64) * scale, colour)
        axis.set_xlabel(label)
        axis.set_ylim(0, 1.02)
    axes[0].set_ylabel("share of requests at or below")
    return figure


def prefix_figure(requests: Columns, steps: Columns, subtitle: str) -> Figure:
    """Prompt tokens taken from the cache: over time, and as a share of each request's prompt."""
    figure, (left, right) = new_figure(9, 4.2, 1, 2)
    titled(figure, "How much of the prompts came from the prefix cache?", subtitle)
    prompt, cached = (np.asarray(requests[name], np.float64) for name in ("prompt_tokens", "cached_tokens"))
    first = np.asarray(requests["first_scheduled_s"], np.float64)
    order = np.argsort(first, kind="stable")
    time, unit = _time(first[order])
    for values, label, colour in ((prompt, "prompt tokens admitted", GREY), (cached, "of which cached", GREEN)):
        x, _, total = envelope(time, np.cumsum(values[order]))
        left.plot(x, total, drawstyle="steps-post", color=colour, label=label)
        if colour == GREEN:
            left.fill_between(x, 0, total, step="post", color=colour, alpha=0.2, linewidth=0)
    left.set(xlabel=f"time since the first admission ({unit})", ylabel="tokens, running total")
    left.set_ylim(bottom=0)
    counts(left.yaxis)
    left.legend(loc="upper left")
    share = 100 * cached / np.maximum(prompt, 1)
    right.hist(share, bins=np.linspace(0, 100, 21), color=GREEN, edgecolor="white")
    right.set(xlabel="share of the prompt cached (%)", ylabel="requests", xlim=(0, 100))
    counts(right.yaxis)
    overall = 100 * cached.sum() / max(prompt.sum(), 1.0)
    right.set_title(f"{overall:.1f} % of all prompt tokens; {np.mean(cached > 0):.0%} of requests hit")
    return figure


def distribution(axis: Axes, values: NDArray[np.float64], colour: str, label: str | None = None, dash: Any = "-") -> None:
    """Draw an empirical distribution on a log axis; without ``label``, mark its p50, p90 and p99."""
    x, share = ecdf(values)
    x, share = x[x > 0], share[x > 0]
    if not len(x):
        axis.text(0.5, 0.5, "no request has one", transform=axis.transAxes, ha="center", color=GREY)
        return
    axis.plot(x, share, drawstyle="steps-post", color=colour, linewidth=1.8, label=label, linestyle=dash)
    if x[-1] > 3 * x[0]:
        axis.set_xscale("log")
    axis.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
    for percent in () if label else (50, 90, 99):
        at = float(np.percentile(values[np.isfinite(values)], percent))
        axis.plot([at], [percent / 100], "o", color=colour, markersize=5)
        left_of = at > np.sqrt(x[0] * x[-1])
        axis.annotate(
            f"p{percent} = {at:.3g}",
            (at, percent / 100),
            xytext=(-8 if left_of else 8, -3),
            textcoords="offset points",
            ha="right" if left_of else "left",
            va="top",
        )


def _queue_lines(axis: Axes, start: NDArray[np.float64], steps: Columns) -> None:
    for name, label, colour, dash in (
        ("running_requests", "running", GREEN, "-"),
        ("waiting_requests", "waiting", ORANGE, "--"),
    ):
        time, _, high = envelope(start, np.asarray(steps[name]))
        axis.plot(time, high, drawstyle="steps-post", color=colour, linestyle=dash, linewidth=1.4, label=label)


def _mark_preemptions(axes: tuple[Axes, Axes], start: NDArray[np.float64], preempted: NDArray[Any]) -> None:
    at = start[preempted > 0]
    if not len(at):
        return
    label = f"preemptions ({int(preempted.sum()):,})"
    axes[1].plot(at, np.zeros(len(at)), "|", color=VERMILION, markersize=12, label=label, clip_on=False)
    axes[0].plot(at, np.zeros(len(at)), "|", color=VERMILION, markersize=12, clip_on=False)


def _time(seconds: Any) -> tuple[NDArray[np.float64], str]:
    values = np.asarray(seconds, np.float64)
    origin = values[0] if len(values) else 0.0
    scale, unit = time_scale(float(values[-1] - origin) if len(values) else 0.0)
    return (values - origin) / scale, unit


__all__ = ["PURPLE", "distribution", "latency_figure", "memory_figure", "prefix_figure", "write_run_figures"]
