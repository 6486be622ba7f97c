"""Which charts a page shows: the pool, who runs and waits, latencies, what was hit and lost, the rates."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sim.explanation import CAUSES
from sim.planning import plan_kv_cache
from sim.pool_shares import SHARES
from sim.report.page.bars import Bar, Part, bars_html
from sim.report.page.chart import Chart, Series, chart_html
from sim.report.page.read import Run
from sim.report.plan_tables import group_label
from sim.report.roles import PREFILL, is_split, roles_of
from sim.report.style import ecdf, run_colours, time_scale
from sim.report.tables import number, share
from sim.report.timeline import Band, Timelines, timelines
from sim.units import GIB

MARKED = 400
"""Preemption instants drawn at most; of more, equally many of each stretch."""


def charts(runs: Sequence[Run]) -> list[str]:
    """The figures of a page as HTML, in reading order."""
    colour = colours(runs)
    each = [_Timed(run, colour[run.label], timelines(run.steps, roles_of(run.summary))) for run in runs]
    axis = _TimeAxis(*time_scale(max(timed.roles[0].end_s for timed in each)))
    drawn = [_pool(each, axis)]
    if len(runs) == 1:
        drawn += [*(_requests(each[0], of_role, axis) for of_role in each[0].roles), *_stack(runs[0], axis)]
    else:
        for name, question in (("running", "How many requests run together?"), ("waiting", "How many wait?")):
            drawn.append(_per_run(each, axis, f"{name}_requests", question, f"requests {name}"))
    drawn += [_latency(runs, colour, key, question) for key, question in _LATENCIES]
    drawn += _hits(runs)
    if len(runs) > 1:
        drawn += [_rates(runs, colour, *rate) for rate in _RATES]
    return drawn


def colours(runs: Sequence[Run]) -> dict[str, int]:
    """The colour of each run: hybrid and all-full always have the same one each, others take what is left in turn."""
    off = [run.scenario.engine.disable_hybrid_kv_cache_manager for run in runs]
    return {run.label: colour for run, colour in zip(runs, run_colours(off), strict=True)}


_LATENCIES = (("ttft_s", "How long until the first token?"), ("tpot_s", "How fast do tokens come?"))
_NAMES = {"ttft_s": "time to first token", "tpot_s": "time per output token"}
_RATES: tuple[tuple[str, str, Callable[[Run], float | None]], ...] = (
    ("How fast is it in all?", "output tokens/s", lambda run: run.summary["output_tokens_per_s"]),
    ("Who is preempted?", "preemptions", lambda run: float(run.summary["preemptions"])),
)

SLICES = 240


Column = NDArray[np.float64]


class _Timed(NamedTuple):
    """A run, its colour, and its engines over time, by role."""

    run: Run
    colour: int
    roles: Sequence[Timelines]


class _TimeAxis(NamedTuple):
    """The unit of time that all charts of a page share: its length in seconds, and its name."""

    scale: float
    unit: str

    @property
    def label(self) -> str:
        return f"time since the first step ({self.unit})"


def _series(timed: _Timed, values: Any, axis: _TimeAxis) -> list[Series]:
    """A curve with its band per role: thin for replicas that only prefill, so that both can have the run's colour."""
    return [
        Series(
            f"{timed.run.label}: {of_role.role}" if of_role.role else timed.run.label,
            timed.colour,
            *_drawn(of_role.band(values, axis.scale, SLICES)),
            thin=of_role.role == PREFILL,
        )
        for of_role in timed.roles
    ]


def _drawn(slices: Band) -> tuple[Column, Column, Column, Column]:
    """What a series draws: x, y, and its band."""
    return slices.time, slices.mean, slices.low, slices.high


def _per_replica(each: Sequence[_Timed], label: str) -> tuple[str, str]:
    """The label of an axis and a note, which say of runs with several replicas that one of them is meant."""
    if all("replicas" not in timed.run.summary for timed in each):
        return label, ""
    return f"{label}, per replica", "The mean over the replicas as a line, the lowest to the highest of any as a band."


def _pool(each: Sequence[_Timed], axis: _TimeAxis) -> str:
    series = []
    for timed in each:
        used = 100 * np.asarray(timed.run.steps["used_blocks"]) / max(timed.run.summary["num_blocks"] - 1, 1)
        series += _series(timed, used, axis)
    _, several = _per_replica(each, "")
    held = "Blocks that running requests hold, of all but the null block"
    note = f"{held}. {several}" if several else f"{held}: mean as a line, lowest to highest as a band."
    title = "Does the KV cache fill up?"
    return chart_html(Chart(title, axis.label, "pool in use (%)", series, y_top=105.0, note=note))


def _requests(timed: _Timed, of_role: Timelines, axis: _TimeAxis) -> str:
    """Who runs and waits on the replicas of one role."""
    steps = timed.run.steps
    series = [
        Series(name, colour, *_drawn(of_role.band(steps[f"{name}_requests"], axis.scale, SLICES)))
        for name, colour in (("running", 2), ("waiting", 1))
    ]
    preempted = of_role.instants(steps["preempted_requests"]) / axis.scale
    count = int(np.asarray(steps["preempted_requests"])[of_role.rows()].sum())
    marks = (f"preemptions ({number(count)})", _thinned(preempted))
    label, note = _per_replica([timed], "requests")
    title = f"Who runs, who waits, of the replicas that {of_role.role}?" if of_role.role else "Who runs, who waits?"
    return chart_html(Chart(title, axis.label, label, series, marks=marks, note=note))


def _thinned(instants: NDArray[np.float64]) -> list[float]:
    stride = -(-len(instants) // MARKED) if len(instants) else 1
    return [float(at) for at in instants[::stride]]


def _per_run(each: Sequence[_Timed], axis: _TimeAxis, name: str, title: str, label: str) -> str:
    series = [one for timed in each for one in _series(timed, timed.run.steps[name], axis)]
    label, note = _per_replica(each, label)
    return chart_html(Chart(title, axis.label, label, series, note=note))


def _stack(run: Run, axis: _TimeAxis) -> list[str]:
    """What every byte of the pool holds, where the run recorded it (``--explain``)."""
    if "free_bytes" not in run.steps:
        return []
    (over_time,) = timelines(run.steps, idle=False)
    series = []
    below: NDArray[np.float64] = np.zeros(len(run.steps["step"]))
    for colour, (name, part, groups) in enumerate(_layers(run)):
        own = sum((run.steps[f"group_{group}_{part}_bytes"] for group in groups), np.zeros(len(below))) / GIB
        low, high, shown = (over_time.band(values, axis.scale, SLICES) for values in (below, below + own, own))
        series.append(Series(name, colour % 6, high.time, high.mean, low=low.mean, filled=True, shown=shown.mean))
        below = below + own
    top = float(sum(np.asarray(run.steps[name])[:1].sum() for name in run.steps if name.endswith("_bytes"))) / GIB
    note = (
        "Rounding: past a request's last token. Padding: used by no layer. Cached: free, but can still be hit. While "
        "an engine is idle, its pool is as the last step left it."
    )
    title = "What does every block hold?"
    return [chart_html(Chart(title, axis.label, "GiB per GPU", series, y_top=top or None, note=note))]


def _layers(run: Run) -> list[tuple[str, str, list[int]]]:
    """The layers of the stack from below: a name, the share of the pool it shows, and of which groups."""
    plan = plan_kv_cache(run.scenario.model, run.scenario.engine, run.scenario.memory)
    labels = [group_label(group) for group in plan.groups]
    live = [
        (f"live: {kind}", "live", [i for i, label in enumerate(labels) if label == kind])
        for kind in dict.fromkeys(labels)
    ]
    everyone = list(range(len(labels)))
    return [*live, *((share_, share_, everyone) for share_ in SHARES if share_ != "live")]


def _latency(runs: Sequence[Run], colour: dict[str, int], key: str, title: str) -> str:
    finite = [values[np.isfinite(values)] for run in runs for values in [np.asarray(run.requests[key], np.float64)]]
    together = np.concatenate(finite) if finite else np.zeros(0)
    unit, scale = ("ms", 1e-3) if len(together) and np.percentile(together, 90) < 1 else ("s", 1.0)
    series = []
    for run, values in zip(runs, finite, strict=True):
        x, part = ecdf(values / scale, points=200)
        series.append(Series(run.label, colour[run.label], x, 100 * part))
    positive = together[together > 0]
    log = bool(len(positive)) and float(positive.max()) > 20 * float(np.percentile(positive, 1))
    label = f"{_NAMES[key]} ({unit})"
    note = "; ".join(dict.fromkeys(str(run.summary["latency_class"]) for run in runs))
    return chart_html(Chart(title, label, "requests at or below (%)", series, log_x=log, y_top=103.0, note=note))


def _hits(runs: Sequence[Run]) -> list[str]:
    """Of each run, what became of the prompt tokens that were looked up."""
    explained = all(run.summary.get("lost_hits") for run in runs)
    bars = [_explained_bar(run) if explained else _hit_bar(run) for run in runs]
    note = "" if explained else _how_to_explain(runs)
    title = "What became of the prompt tokens?" if explained else "How much came from the prefix cache?"
    return [bars_html(title, [bar for bar in bars if bar.parts], note=note, key=True)]


def _how_to_explain(runs: Sequence[Run]) -> str:
    """How to see which rule took the tokens that did not hit; a prefill and decode split cannot be explained."""
    alike = [run.label for run in runs if not is_split(run.summary)]
    if not alike:
        return ""
    of = "" if len(alike) == len(runs) else f" for {', '.join(alike)}"
    return f'To see which rule took the rest{of}, add --explain to the command under "Reproduce it".'


def _hit_bar(run: Run) -> Bar:
    queries, hits = run.summary["prefix_cache_queries_tokens"], run.summary["prefix_cache_hit_tokens"]
    parts = [
        Part("hit", 2, hits, f"{number(hits)} tokens, {share(hits, queries)}"),
        Part("computed", 6, queries - hits, f"{number(queries - hits)} tokens, {share(queries - hits, queries)}"),
    ]
    return Bar(run.label, parts if queries else [], f"{share(hits, queries)} hit")


def _explained_bar(run: Run) -> Bar:
    found = run.summary["lost_hits"]["prompts"]
    lost = [(f"lost: {name}", found["lost"].get(cause, 0)) for cause, name in CAUSES.items()]
    new = found["being_computed"] + found["never_seen"] + found["last_tokens"]
    total = found["tokens"]
    pieces = [("hit", 2, found["hit"])]
    pieces += [(name, (5, 1, 0, 3, 4)[i % 5], tokens) for i, (name, tokens) in enumerate(lost)]
    pieces.append(("not seen before", 6, new))
    parts = [
        Part(name, colour, tokens, f"{number(tokens)} tokens, {share(tokens, total)}")
        for name, colour, tokens in pieces
    ]
    return Bar(run.label, [part for part in parts if part.value > 0], f"{share(found['hit'], total)} hit")


def _rates(
    runs: Sequence[Run], colour: dict[str, int], title: str, name: str, value: Callable[[Run], float | None]
) -> str:
    bars = []
    for run in runs:
        amount = value(run) or 0.0
        bars.append(Bar(run.label, [Part(name, colour[run.label], amount, number(amount))], number(amount)))
    return bars_html(f"{title} ({name})", bars)
