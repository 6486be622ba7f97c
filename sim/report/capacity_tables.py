"""The answer of ``capacity``: per variant the limit, its spread over seeds, and what stops it beyond."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sim.load import OVERLOADED, SHORT
from sim.report.sweep_labels import knob_label, limit_question
from sim.report.tables import Table, agreed, number, seconds
from sim.search import REFUSED, Knob, Target
from sim.sweeps import Row

SHORT_LIMIT = (
    "the run at the limit is too short to tell whether it keeps up: the limit may be lower; give more requests"
)


def capacity_data(
    name: str, knob: Knob, targets: Sequence[Target], rows: Mapping[str, Row], expected: str
) -> dict[str, Any]:
    """The search for JSON: limits, and every run of it."""
    return {
        "name": name,
        "expected": expected,
        "over": knob.name,
        "unit": knob.unit,
        "slo": [str(target) for target in targets],
        "variants": {
            variant: {"error": row["error"], **row["values"], "probes": row.get("probes", [])}
            for variant, row in rows.items()
        },
    }


def capacity_tables(
    knob: Knob, targets: Sequence[Target], rows: Mapping[str, Row], seeds: int, destination: str
) -> list[Table]:
    """The table ``capacity`` prints."""
    title = f"What is the {limit_question(knob, targets)}?"
    header = (
        "",
        knob_label(knob),
        f"{seeds} seeds" if seeds > 1 else "1 seed",
        *(target.name for target in targets),
        "tenths",
        "state",
        "next tried",
    )
    return [
        Table(title, header, [_row(knob, name, row, targets) for name, row in rows.items()], _notes(rows, destination))
    ]


def _row(knob: Knob, name: str, row: Row, targets: Sequence[Target]) -> tuple[str, ...]:
    dashes = ("-",) * len(targets)
    if row["error"]:
        return (name, "-", "-", *dashes, "-", "refused", "-")
    values = row["values"]
    if values["limit"] is None:
        return (name, "none found", "-", *dashes, "-", "-", _beyond(knob, row, targets))
    at = _at_limit(row)
    spread = "-"
    if len(row["limits"]) > 1:
        spread = f"{number(values['limit.lowest'])} to {number(values['limit.highest'])}"
    numbers = (shown(target, value) for target, value in zip(targets, at["numbers"], strict=True))
    return (
        name,
        number(values["limit"]),
        spread,
        *numbers,
        f"{at['tenths']} of 10",
        at["verdict"],
        _beyond(knob, row, targets),
    )


def _at_limit(row: Row) -> Mapping[str, Any]:
    """The first seed's run at its own limit."""
    return next(probe for probe in _first_seed(row) if probe["value"] == row["limits"][0])


def _beyond(knob: Knob, row: Row, targets: Sequence[Target]) -> str:
    """The least load that did not pass, and why."""
    failing = [probe for probe in _first_seed(row) if not passes(probe)]
    if row.get("limits") and row["limits"][0] is not None:
        failing = [probe for probe in failing if _harder(knob, probe) > _harder(knob, _at_limit(row))]
    if not failing:
        return "-"
    probe = min(failing, key=lambda probe: _harder(knob, probe))
    return f"{number(probe['value'])}: {reason(probe, targets)}"


def reason(probe: Mapping[str, Any], targets: Sequence[Target]) -> str:
    """Why a run does not pass."""
    if probe["verdict"] == REFUSED:
        return "refused"
    missed = [
        f"{target.name} {shown(target, value)}"
        for target, value in zip(targets, probe["numbers"], strict=True)
        if not target.met(value)
    ]
    if missed:
        return ", ".join(missed) + (", overloaded" if probe["verdict"] == OVERLOADED else "")
    return "overloaded; looks good since it ended"


def passes(probe: Mapping[str, Any]) -> bool:
    """Whether a run met its targets and kept up."""
    return bool(probe["met"]) and probe["verdict"] not in (OVERLOADED, REFUSED)


def _first_seed(row: Row) -> list[Mapping[str, Any]]:
    probes = row.get("probes", [])
    return [probe for probe in probes if probe["seed"] == probes[0]["seed"]]


def _harder(knob: Knob, probe: Mapping[str, Any]) -> float:
    """The load of a run, larger for the harder one: less memory and fewer replicas are harder."""
    return float(probe["value"]) if knob.most else -float(probe["value"])


def shown(target: Target, value: float | None) -> str:
    """A target's number for reading."""
    return seconds(value) if target.metric.endswith("_s") and target.statistic else number(value)


def times_class(rows: Mapping[str, Row]) -> str:
    """How far the times of named rows can be trusted: once where all agree, otherwise with the names."""
    return agreed({name: row["values"].get("latency_class") for name, row in rows.items()})


def _notes(rows: Mapping[str, Row], destination: str) -> list[str]:
    notes = [f"{name}: {row['error']}" for name, row in rows.items() if row["error"]]
    limits = {name: row["values"].get("limit") for name, row in rows.items()}
    (first, ours), *others = limits.items()
    notes += [f"{first} over {name}: {ours / theirs:.2f} times" for name, theirs in others if ours and theirs]
    good = sum(p["met"] and p["verdict"] == OVERLOADED for row in rows.values() for p in row.get("probes", ()))
    if good:
        notes.append(f"{good} runs met the targets only because they ended: their queue was still growing")
    notes += [f"{name}: {SHORT_LIMIT}" for name, row in rows.items() if row["values"].get("limit.verdict") == SHORT]
    longest = max((p.get("lengthened", 1) for row in rows.values() for p in row.get("probes", ())), default=1)
    if longest > 1:
        notes.append(f"runs too short to tell whether they keep up were given up to {longest} times as many requests")
    if any(len(row.get("limits", ())) > 1 for row in rows.values()):
        notes.append("the limit: mean, lowest and highest over seeds; then the first seed at its own limit")
    if times := times_class(rows):
        notes.append(f"times: {times}")
    notes.append("tenths: parts of that run, by order of arrival, that meet the targets by themselves")
    notes.append("stable: the queue empties; backlogged: it never does, without growing; overloaded: it grows")
    notes.append(f"results in {destination}")
    return notes
