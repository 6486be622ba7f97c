"""Replicas that only prefill and replicas that only decode: what a summary says of each role, never of both mixed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

PREFILL = "prefill"

_PEAKS = ("peak_running", "peak_waiting", "peak_used_blocks")
_MEANS = ("mean_running", "mean_used_blocks")


def roles_of(summary: Mapping[str, Any]) -> list[str]:
    """The role of each replica of a run, prefill or decode; empty ones where all do the same."""
    return [str(part.get("role", "")) for part in summary.get("replicas", ())]


def is_split(summary: Mapping[str, Any]) -> bool:
    """Whether prompts were computed on other replicas than outputs."""
    return PREFILL in roles_of(summary)


def by_role(summary: Mapping[str, Any]) -> list[tuple[str, Mapping[str, Any]]]:
    """The summary once per role, with the peaks and means of its replicas alone; once without a role for others.

    >>> one = {"peak_running": 3, "peak_waiting": 9, "peak_used_blocks": 5, "mean_running": 2.0, "mean_used_blocks": 4}
    >>> other = {**one, "peak_running": 40, "mean_running": 20.0}
    >>> split = {"replicas": [{"role": "prefill", "busy_s": 1, **one}, {"role": "decode", "busy_s": 1, **other}]}
    >>> [(role, part["peak_running"], part["mean_running"]) for role, part in by_role(split)]
    [('prefill', 3, 2.0), ('decode', 40, 20.0)]
    """
    roles = roles_of(summary)
    if not any(roles):
        return [("", summary)]
    return [
        (role, {**summary, **_together([part for part in summary["replicas"] if part["role"] == role])})
        for role in dict.fromkeys(roles)
    ]


def _together(parts: list[Mapping[str, Any]]) -> dict[str, Any]:
    """Highest peaks, and means weighted by the time each replica was busy."""
    busy = sum(part["busy_s"] for part in parts)
    means = {key: sum((part[key] or 0) * part["busy_s"] for part in parts) / busy if busy else None for key in _MEANS}
    return {**{key: max(part[key] for part in parts) for key in _PEAKS}, **means}


def per_role(cell: Callable[[Mapping[str, Any]], str]) -> Callable[[Mapping[str, Any]], str]:
    """A cell of a table that says its number for each role, where a run has roles.

    >>> per_role(lambda summary: str(summary["steps"]))({"steps": 7})
    '7'
    """
    return lambda summary: ", ".join(f"{cell(part)} {role}".strip() for role, part in by_role(summary))
