"""The page's tables: the numbers of every run side by side, and what their scenarios differ in."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from html import escape
from typing import Any

from sim.report.page.read import Run
from sim.report.roles import per_role
from sim.report.tables import PERCENTILES, number, seconds, share

Cell = Callable[[Mapping[str, Any]], str]

_ROWS: tuple[tuple[str, str, Cell], ...] = (
    ("What fits", "blocks", lambda s: number(s["num_blocks"])),
    ("What fits", "KV cache groups", lambda s: number(s["num_groups"])),
    ("What fits", "KV cache size (tokens, as vLLM prints it)", lambda s: number(s["kv_cache_size_tokens"])),
    ("What fits", "maximum concurrency", lambda s: f"{s['max_concurrency']:.2f}x"),
    ("What happened", "requests finished", lambda s: f"{number(s['finished'])} of {number(s['requests'])}"),
    ("What happened", "running, at the peak", per_role(lambda s: number(s["peak_running"]))),
    ("What happened", "running, on average", per_role(lambda s: number(s["mean_running"]))),
    ("What happened", "waiting, at the peak", per_role(lambda s: number(s["peak_waiting"]))),
    (
        "What happened",
        "pool in use, at the peak",
        per_role(lambda s: share(s["peak_used_blocks"], s["num_blocks"] - 1)),
    ),
    (
        "What happened",
        "pool in use, on average",
        per_role(lambda s: share(s["mean_used_blocks"] or 0, s["num_blocks"] - 1)),
    ),
    ("What happened", "preemptions", lambda s: number(s["preemptions"])),
    ("What happened", "evicted blocks", lambda s: number(s["evicted_blocks"])),
    (
        "What happened",
        "prompt tokens from the prefix cache",
        lambda s: share(s["prefix_cache_hit_tokens"], s["prefix_cache_queries_tokens"]),
    ),
    ("How fast", "output tokens/s", lambda s: number(s["output_tokens_per_s"])),
    ("How fast", "requests/s", lambda s: number(s["requests_per_s"])),
    ("How fast", "time for all", lambda s: seconds(s["makespan_s"])),
)
_TIMES = (("ttft_s", "time to first token"), ("tpot_s", "time per output token"), ("e2e_s", "end to end"))


def numbers_html(runs: Sequence[Run]) -> str:
    """Every number of every run; where runs differ, the row is marked."""
    rows = [(section, name, [cell(run.summary) for run in runs]) for section, name, cell in _ROWS]
    for key, name in _TIMES:
        rows += [
            ("Times", f"{name}, {which}", [seconds(run.summary[key][which]) for run in runs]) for which in PERCENTILES
        ]
    head = "".join(f"<th scope=col>{escape(run.label)}</th>" for run in runs)
    body = []
    before = ""
    for section, name, cells in rows:
        if section != before:
            body.append(f'<tr class="section"><th colspan="{len(runs) + 1}" scope=colgroup>{escape(section)}</th></tr>')
            before = section
        body.append(_row(name, cells))
    return (
        f'<div class="wide"><table><thead><tr><td></td>{head}</tr></thead><tbody>{"".join(body)}</tbody></table></div>'
    )


def _row(name: str, cells: Sequence[str]) -> str:
    differs = len(set(cells)) > 1
    shown = "".join(f"<td>{escape(cell)}</td>" for cell in cells)
    return f"<tr{' class=differs' if differs else ''}><th scope=row>{escape(name)}</th>{shown}</tr>"


def differences_html(runs: Sequence[Run]) -> str:
    """The keys in which the runs' resolved scenarios differ; empty for a single run."""
    if len(runs) < 2:
        return ""
    flat = [dict(_flat(run.scenario.resolved())) for run in runs]
    keys = list(dict.fromkeys(key for keys in flat for key in keys))
    rows = []
    for key in keys:
        cells = [_shown(one.get(key)) for one in flat]
        if len(set(cells)) > 1 and key not in ("name", "question", "expected"):
            rows.append(_row(key, cells))
    if not rows:
        return "<p>The scenarios are equal in every key.</p>"
    head = "".join(f"<th scope=col>{escape(run.label)}</th>" for run in runs)
    return (
        f'<div class="wide"><table><thead><tr><td></td>{head}</tr></thead><tbody>{"".join(rows)}</tbody></table></div>'
    )


def _flat(value: Any, path: str = "") -> list[tuple[str, Any]]:
    """Dotted keys and values, lists numbered.

    >>> _flat({"a": {"b": 1}, "c": [2]})
    [('a.b', 1), ('c.0', 2)]
    """
    if isinstance(value, Mapping) and value:
        return [leaf for key, inner in value.items() for leaf in _flat(inner, f"{path}.{key}" if path else str(key))]
    if isinstance(value, list) and value:
        return [leaf for i, inner in enumerate(value) for leaf in _flat(inner, f"{path}.{i}")]
    return [(path, value)]


def _shown(value: Any) -> str:
    if value is None:
        return "-"
    return str(value).lower() if isinstance(value, bool) else str(value)
