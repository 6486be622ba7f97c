"""The answer of a sweep: a row per point, the best one, and the columns that become Parquet."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from sim.errors import InputError, nearest
from sim.load import SHORT
from sim.report.capacity_tables import SHORT_LIMIT
from sim.report.sweep_labels import axis_label, knob_in, knob_label
from sim.report.tables import Table, agreed, number, seconds, share
from sim.sweeps import Row, Sweep

RUN_COLUMNS = ("requests_per_s", "ttft_s.p99", "tpot_s.p90", "prefix_cache_hit_rate", "preemptions", "load.verdict")
SEARCH_COLUMNS = ("limit", "limit.lowest", "limit.highest")
MOST_ROWS = 60
"""Points that are printed; all of them are in the Parquet file."""


def sweep_columns(sweep: Sweep, rows: Sequence[Row]) -> dict[str, Any]:
    """A column per key and per number, one row per point, in order; ``error`` holds what a failed point said."""
    names = dict.fromkeys(name for row in rows for name in row["values"])
    columns: dict[str, Any] = {"point": np.arange(len(rows))}
    for key in sweep.keys:
        columns[key] = _column([point.changes.get(key) for point in sweep.points])
    for name in names:
        columns.setdefault(name, _column([row["values"].get(name) for row in rows]))
    columns["error"] = [row["error"] for row in rows]
    return columns


def probe_columns(sweep: Sweep, rows: Sequence[Row]) -> dict[str, Any]:
    """Every run of the searches: point, seed, the load, each target's number, and what came of it."""
    found = [(index, probe) for index, row in enumerate(rows) for probe in row.get("probes", ())]
    targets = sweep.points[0].search.targets if sweep.points[0].search else ()
    columns: dict[str, Any] = {"point": _column([index for index, _ in found])}
    for name in ("seed", "value"):
        columns[name] = _column([probe[name] for _, probe in found])
    for place, target in enumerate(targets):
        columns[target.name] = _column([probe["numbers"][place] for _, probe in found])
    columns["met"] = np.array([probe["met"] for _, probe in found], np.bool_)
    columns["verdict"] = [probe["verdict"] for _, probe in found]
    return columns


def _column(values: Sequence[Any]) -> Any:
    """Whole numbers, numbers (None becomes NaN) or text."""
    if all(type(value) is int for value in values):
        return np.array(values, np.int64)
    if all(value is None or (isinstance(value, int | float) and not isinstance(value, bool)) for value in values):
        return np.array([np.nan if value is None else value for value in values], np.float64)
    return [value if isinstance(value, str) or value is None else json.dumps(value) for value in values]


def best_point(sweep: Sweep, rows: Sequence[Row]) -> int | None:
    """The point with the highest or lowest value of the column the sweep asks for; None when there is none."""
    if sweep.best is None:
        return None
    column, want = sweep.best
    known = [
        (float(value), -index)
        for index, row in enumerate(rows)
        if isinstance(value := row["values"].get(column), int | float)
    ]
    if not known:
        return None
    chosen = max(known) if want == "highest" else max((-value, index) for value, index in known)
    return -chosen[1]


def sweep_data(sweep: Sweep, rows: Sequence[Row]) -> dict[str, Any]:
    """The sweep for JSON."""
    return {
        "name": sweep.name,
        "question": sweep.question,
        "expected": sweep.expected,
        "best_point": best_point(sweep, rows),
        "points": [
            {"point": point.index, "changes": dict(point.changes), **row}
            for point, row in zip(sweep.points, rows, strict=True)
        ],
    }


def columns_class(columns: Mapping[str, Any]) -> str:
    """How far the times of a sweep can be trusted: once where all points agree, otherwise with their numbers."""
    return agreed({f"point {index}": said for index, said in enumerate(columns.get("latency_class", ()))})


def _heading(name: str, sweep: Sweep) -> str:
    """A column's name; the limit says of what, in which unit."""
    search = sweep.points[0].search
    return f"limit: {knob_label(knob_in(sweep, search))}" if search and name == "limit" else name


def shown_columns(sweep: Sweep, rows: Sequence[Row]) -> tuple[str, ...]:
    """The columns to print: those the sweep names, or the usual ones, of what was measured where that is told apart."""
    known = {name for row in rows for name in row["values"]} | set(sweep.keys)
    usual = tuple(f"measured.{name}" if f"measured.{name}" in known else name for name in RUN_COLUMNS)
    columns = sweep.columns or (SEARCH_COLUMNS if sweep.points[0].search else usual)
    return tuple(name for name in columns if name in known)


def check_columns(sweep: Sweep, rows: Sequence[Row]) -> None:
    """InputError when the sweep shows, draws or chooses by a column that no point has; points that failed have none."""
    values = {name for row in rows for name in row["values"]}
    known = values | {*sweep.keys, "point", "error"}
    named = {
        "columns": sweep.columns,
        "plot": [part for name in sweep.plot for part in name.split("+")],
        "best": sweep.best[:1] if sweep.best else (),
    }
    for key, names in named.items() if values else ():
        for name in names:
            if name not in known:
                close = nearest(name, known)
                hint = f"nearest is {close!r}" if close else f"there are {', '.join(sorted(known))}"
                after = "the finished points are kept: mend the name, and the same command goes on"
                raise InputError(f"no column {name!r}; {hint}; {after}", where=sweep.places[key])


def sweep_tables(sweep: Sweep, rows: Sequence[Row], destination: str) -> list[Table]:
    """The table ``sweep`` prints."""
    columns = shown_columns(sweep, rows)
    cells = [
        (*(plain_value(point.changes.get(key)) for key in sweep.keys), *(shown(name, row) for name in columns))
        for point, row in zip(sweep.points, rows, strict=True)
    ]
    failed = [f"point {index} failed: {row['error']}" for index, row in enumerate(rows) if row["error"]]
    notes = [f"limit: {axis_label('limit', sweep)}"] if sweep.points[0].search else []
    notes += [f"expected: {sweep.expected}"] if sweep.expected else []
    best = best_point(sweep, rows)
    if best is not None and sweep.best is not None:
        changes = ", ".join(f"{key} = {plain_value(value)}" for key, value in sweep.points[best].changes.items())
        notes.insert(0, f"best: {changes} ({sweep.best[1]} {sweep.best[0]}: {shown(sweep.best[0], rows[best])})")
    if times := columns_class({"latency_class": [row["values"].get("latency_class") for row in rows]}):
        notes.append(f"times: {times}")
    short = [str(index) for index, row in enumerate(rows) if row["values"].get("limit.verdict") == SHORT]
    if short:
        notes.append(f"point {', '.join(short)}: {SHORT_LIMIT}")
    notes += failed[:5] + ([f"{len(failed)} points failed in all"] if len(failed) > 5 else [])
    if len(cells) > MOST_ROWS:
        notes.append(f"the first {MOST_ROWS} of {len(cells):,} points")
    notes.append(f"results in {destination}")
    heads = (*sweep.keys, *(_heading(name, sweep) for name in columns))
    return [Table(sweep.question or sweep.name, heads, cells[:MOST_ROWS] or [()], notes)]


def shown(name: str, row: Row) -> str:
    """A number of a row for reading."""
    value = row["values"].get(name)
    if value is None or isinstance(value, str):
        return value or "-"
    if name.split(".", maxsplit=1)[0].endswith("_s") and not name.startswith(("requests_per", "output_tokens_per")):
        return seconds(value)
    return share(value, 1) if name.endswith("_rate") else number(value)


def plain_value(value: Any) -> str:
    """A value of a key for reading."""
    return value if isinstance(value, str) else f"{value:,}" if type(value) is int else json.dumps(value)
