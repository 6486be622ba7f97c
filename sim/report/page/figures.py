"""Which charts a page shows: the pool, who runs and waits, latencies, what was hit and lost, the rates."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from sim.explanation import CAUSES
from sim.planning import plan_kv_cache
from sim.pool_shares import SHARES
from sim.report.page.bars import Bar, Part, bars_html
from sim.report.page.chart import Chart, Series, chart_html
from sim.report.page.read import Run
from sim.report.plan_tables import group_label
from sim.report.run_figures import column
from sim.report.style import band, ecdf, moments, run_colours, time_scale
from sim.report.tables import number, share
from sim.units import GIB

MARKED = 400
"""Preemption instants drawn at most; of more, equally many of each stretch."""


def charts(runs: Sequence[Run]) -> list[str]:
    """The figures of a page as HTML, in reading order."""
    colour = colours(runs)
    scale, unit = time_scale(max((_duration(run) for run in runs), default=0.0))
    over_time = [(run, colour[run.label], *_timeline(run, scale)) for run in runs]
    drawn = [_pool(over_time, unit)]
    if len(runs) == 1:
        drawn += [_requests(over_time[0], unit), *_stack(over_time[0], unit)]
    else:
        for name, question in (("running", "How many requests run together?"), ("waiting", "How many wait?")):
            drawn.append(_per_run(over_time, unit, f"{name}_requests", question, f"requests {name}"))
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

_Timed = tuple[Run, int, NDArray[np.float64], NDArray[np.intp]]


def _duration(run: Run) -> float:
    end, start = run.steps["end_s"], run.steps["start_s"]
    return float(end[-1] - start[0]) if len(end) else 0.0


def _timeline(run: Run, scale: float) -> tuple[NDArray[np.float64], NDArray[np.intp]]:
    """Times since the first step in the page's unit, and for each its row of ``steps`` (-1: idle)."""
    time, row = moments(run.steps)
    return (time - time[:1]) / scale, row


def _banded(name: str, colour: int, time: NDArray[np.float64], values: NDArray[np.float64]) -> Series:
    slices = band(time, values, slices=240)
    return Series(name, colour, slices.time, slices.mean, slices.low, slices.high)


def _pool(runs: Sequence[_Timed], unit: str) -> str:
    series = []
    for run, colour, time, row in runs:
        used = 100 * column(run.steps, "used_blocks", row) / max(run.summary["num_blocks"] - 1, 1)
        series.append(_banded(run.label, colour, time, used))
    note = "Blocks that running requests hold, of all but the null block: mean as a line, lowest to highest as a band."
    title = "Does the KV cache fill up?"
    return chart_html(Chart(title, _time_label(unit), "pool in use (%)", series, y_top=105.0, note=note))


def _time_label(unit: str) -> str:
    return f"time since the first step ({unit})"


def _requests(timed: _Timed, unit: str) -> str:
    run, _, time, row = timed
    series = [
        _banded("running", 2, time, column(run.steps, "running_requests", row)),
        _banded("waiting", 1, time, column(run.steps, "waiting_requests", row)),
    ]
    preempted = time[column(run.steps, "preempted_requests", row) > 0]
    marks = (f"preemptions ({number(run.summary['preemptions'])})", _thinned(preempted))
    return chart_html(Chart("Who runs, who waits?", _time_label(unit), "requests", series, marks=marks))


def _thinned(instants: NDArray[np.float64]) -> list[float]:
    stride = -(-len(instants) // MARKED) if len(instants) else 1
    return [float(at) for at in instants[::stride]]


def _per_run(runs: Sequence[_Timed], unit: str, name: str, title: str, label: str) -> str:
    series = [_banded(run.label, colour, time, column(run.steps, name, row)) for run, colour, time, row in runs]
    return chart_html(Chart(title, _time_label(unit), label, series))


def _stack(timed: _Timed, unit: str) -> list[str]:
    """What every byte of the pool holds, where the run recorded it (``--explain``)."""
    run, _, time, row = timed
    if "free_bytes" not in run.steps:
        return []
    scenario = run.scenario
    plan = plan_kv_cache(scenario.model, scenario.engine, scenario.memory)
    labels = [group_label(group) for group in plan.groups]
    layers = [
        (f"live: {kind}", [i for i, label in enumerate(labels) if label == kind]) for kind in dict.fromkeys(labels)
    ]
    stacked = [(name, "live", groups) for name, groups in layers]
    everyone = list(range(len(labels)))
    stacked += [(share_, share_, everyone) for share_ in SHARES if share_ != "live"]
    below = np.zeros(len(time))
    series = []
    for colour, (name, part, groups) in enumerate(stacked):
        own = (
            sum((column(run.steps, f"group_{group}_{part}_bytes", row) for group in groups), np.zeros(len(time))) / GIB
        )
        low, high, shown = (band(time, values, slices=240) for values in (below, below + own, own))
        series.append(Series(name, colour % 6, high.time, high.mean, low=low.mean, filled=True, shown=shown.mean))
        below = below + own
    top = float(sum(np.asarray(run.steps[name])[:1].sum() for name in run.steps if name.endswith("_bytes"))) / GIB
    note = "Rounding: past a request's last token. Padding: used by no layer. Cached: free, but can still be hit."
    title = "What does every block hold?"
    return [chart_html(Chart(title, _time_label(unit), "GiB per GPU", series, y_top=top or None, note=note))]


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
    note = "" if explained else "Run with --explain to see which rule took the rest."
    title = "What became of the prompt tokens?" if explained else "How much came from the prefix cache?"
    return [bars_html(title, [bar for bar in bars if bar.parts], note=note, key=True)]


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
