"""Targets: ``ttft_s.p99<1.0, tpot_s.p90<0.05``, read strictly and held against a run."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from sim.errors import InputError, nearest
from sim.measure import TIMES, Measure

COUNTS = ("preemptions", "rejected", "truncated", "prefix_cache_hit_rate", "requests_per_s", "output_tokens_per_s")
"""Numbers of the summary that may be a target besides latencies."""
_FORM = re.compile(r"\s*([A-Za-z]\w*)(?:\.(mean|p\d{1,2}(?:\.\d+)?|max))?\s*(<=|>=|<|>)\s*([0-9.eE+-]+)\s*")


@dataclass(frozen=True, slots=True)
class Target:
    """One condition: a latency's mean, percentile or maximum, or a number of the summary, against a bound."""

    metric: str
    statistic: str | None
    relation: str
    bound: float

    @property
    def name(self) -> str:
        """The quantity, as in ``ttft_s.p99``."""
        return self.metric if self.statistic is None else f"{self.metric}.{self.statistic}"

    def __str__(self) -> str:
        return f"{self.name}{self.relation}{self.bound:g}"

    def value(self, requests: Mapping[str, Any], summary: Mapping[str, Any], measure: Measure) -> float | None:
        """The quantity in a run, of what was measured where that is told apart; None where there is none."""
        if self.statistic is None:
            given = summary.get("measured", {}).get(self.metric, summary[self.metric])
            return None if given is None else float(given)
        sent = np.asarray(requests["arrival_s"])
        values = np.asarray(requests[self.metric])[measure.of(sent).holds(sent)]
        values = values[~np.isnan(values)]
        if not values.size:
            return None
        if self.statistic == "mean":
            return float(values.mean())
        return float(np.percentile(values, 100.0 if self.statistic == "max" else float(self.statistic[1:])))

    def met(self, value: float | None) -> bool:
        """Whether a value meets the target; a latency nobody had does."""
        if value is None:
            return self.statistic is not None
        return {
            "<": value < self.bound,
            "<=": value <= self.bound,
            ">": value > self.bound,
            ">=": value >= self.bound,
        }[self.relation]


def parse_targets(text: str) -> tuple[Target, ...]:
    """Read targets separated by commas. Raises InputError that names ``--slo``.

    >>> [str(target) for target in parse_targets("ttft_s.p99 < 1.0, tpot_s.mean<=0.05")]
    ['ttft_s.p99<1', 'tpot_s.mean<=0.05']
    """
    targets = tuple(_target(part) for part in text.split(",") if part.strip())
    if not targets:
        raise InputError("gives no target; write it like ttft_s.p99<1.0", where="--slo")
    return targets


def _target(part: str) -> Target:
    found = _FORM.fullmatch(part)
    if found is None:
        raise InputError(
            f"cannot read {part.strip()!r}; write METRIC.STATISTIC<BOUND, as in ttft_s.p99<1.0 "
            "(statistics: mean, max, p50, p99.9, …)",
            where="--slo",
        )
    metric, statistic, relation, bound = found.groups()
    allowed = TIMES if statistic else COUNTS
    if metric not in allowed:
        close = nearest(metric, (*TIMES, *COUNTS))
        what = f"with .{statistic} are allowed" if statistic else "alone are allowed"
        hint = f"; nearest is {close!r}" if close else ""
        raise InputError(f"unknown metric {metric!r}; {what} {', '.join(allowed)}{hint}", where="--slo")
    try:
        return Target(metric, statistic, relation, float(bound))
    except ValueError as error:
        raise InputError(f"{bound!r} is no number in {part.strip()!r}", where="--slo") from error
