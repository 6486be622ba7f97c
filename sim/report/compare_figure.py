"""The figure of ``compare``: every variant in the same six panels."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from sim.report.compare_tables import Outcome
from sim.report.roles import PREFILL, is_split, roles_of
from sim.report.run_figures import distribution, time_axis
from sim.report.style import (
    CYCLE,
    DASHES,
    counts,
    ecdf,
    legend_above,
    new_figure,
    run_colours,
    save,
    styled,
    time_scale,
    titled,
)
from sim.report.tables import number
from sim.report.timeline import timelines
from sim.run import Result

_APART = "over time: thin lines for the replicas that prefill, thick ones for those that decode"
Looks = dict[str, int]
"""Per variant its place in the palette."""


def write_compare_figure(path: Path, question: str, outcomes: Sequence[Outcome], subtitle: str) -> None:
    """Draw the variants that ran into the PNG at ``path``."""
    results = {outcome.variant: outcome.result for outcome in outcomes if outcome.result is not None}
    all_full = frozenset(outcome.variant for outcome in outcomes if outcome.all_full)
    with styled():
        save(compare_figure(question, results, subtitle, all_full), path)


def compare_figure(question: str, results: dict[str, Result], subtitle: str, all_full: Collection[str] = ()) -> Figure:
    """Requests running, pool in use and hits above; latencies and throughput below.

    ``all_full`` names variants without the hybrid manager: a lone one has the same colour in every figure.
    """
    looks = dict(zip(results, run_colours([name in all_full for name in results]), strict=True))
    figure, axes = new_figure(12.5, 7, 2, 3)
    apart = any(is_split(result.summary) for result in results.values())
    titled(figure, question or "What do the variants differ in?", f"{subtitle}\n{_APART}" if apart else subtitle)
    running, used, hits, ttft, tpot, throughput = axes
    _over_time(running, results, looks, lambda result: np.asarray(result.steps["running_requests"], np.float64))
    several = any("replicas" in result.summary for result in results.values())
    running.set_ylabel("requests running per replica" if several else "requests running")
    counts(running.yaxis)
    _over_time(used, results, looks, lambda result: 100 * result.steps["used_blocks"] / (result.plan.num_blocks - 1))
    used.set(ylabel="pool in use (%)", ylim=(0, 105))
    _bars(hits, results, looks, _hit_share, "prompt tokens from the prefix cache (%)")
    _latencies(ttft, results, looks, "ttft_s", "time to first token")
    _latencies(tpot, results, looks, "tpot_s", "time per output token")
    _bars(throughput, results, looks, lambda result: result.summary["output_tokens_per_s"] or 0.0, "output tokens/s")
    for axis in (running, used, ttft, tpot):
        legend_above(axis)
    return figure


def _over_time(axis: Axes, results: dict[str, Result], looks: Looks, values: Callable[[Result], Any]) -> None:
    """A line per variant, the mean over its replicas; where some only prefill, theirs is a thin one beside it."""
    each = {name: timelines(result.steps, roles_of(result.summary)) for name, result in results.items()}
    scale, unit = time_scale(max(over_time[0].end_s for over_time in each.values()))
    for name, over_time in each.items():
        for of_role in over_time:
            slices = of_role.band(values(results[name]), scale, slices=80)
            axis.plot(
                slices.time,
                slices.mean,
                drawstyle="steps-post" if of_role.drawn_in_full(80) else "default",
                color=CYCLE[looks[name]],
                linestyle=DASHES[looks[name]],
                linewidth=0.9 if of_role.role == PREFILL else 1.8 if of_role.role else 1.5,
                label=None if of_role.role == PREFILL else name,
            )
    axis.set_xlabel(f"time since the first step ({unit})")
    axis.set_ylim(bottom=0)


def _latencies(axis: Axes, results: dict[str, Result], looks: Looks, key: str, what: str) -> None:
    columns = {name: np.asarray(result.requests[key], np.float64) for name, result in results.items()}
    together = np.concatenate(list(columns.values()))
    numbers = together[np.isfinite(together)]
    unit = "ms" if len(numbers) and np.percentile(numbers, 90) < 1 else "s"
    for name, values in columns.items():
        distribution(axis, values, what, CYCLE[looks[name]], name=name, dash=DASHES[looks[name]], unit=unit)
    time_axis(axis, ecdf(numbers * (1e3 if unit == "ms" else 1.0))[0])
    axis.set_ylabel("share of requests at or below")


def _hit_share(result: Result) -> float:
    return 100 * (result.summary["prefix_cache_hit_rate"] or 0.0)


def _bars(axis: Axes, results: dict[str, Result], looks: Looks, value: Callable[[Result], float], label: str) -> None:
    names = list(results)
    values = [value(result) for result in results.values()]
    colours = [CYCLE[looks[name]] for name in names]
    axis.barh(names, values, color=colours, height=0.45)
    for i, (name, amount) in enumerate(zip(names, values, strict=True)):
        preempted = results[name].summary["preemptions"]
        extra = f"\n{number(preempted)} preemptions" if label.startswith("output") else ""
        axis.annotate(f"{number(amount)}{extra}", (amount, i), xytext=(4, 0), textcoords="offset points", va="center")
    axis.set(xlabel=label, xlim=(0, max(1.5 * max(values), 1.0)))
    axis.invert_yaxis()
    axis.grid(visible=False, axis="y")
