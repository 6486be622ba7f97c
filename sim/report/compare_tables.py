"""What ``compare`` answers: the same traffic under each variant, side by side."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from re import sub
from typing import Any

from sim.report.folder import VARIANTS
from sim.report.roles import per_role
from sim.report.tables import PERCENTILES, Table, agreed, number, seconds, share
from sim.run import Result
from sim.scenario import Scenario
from sim.units import format_bytes

Cell = Callable[["Result"], str]


@dataclass(frozen=True, slots=True)
class Outcome:
    """One variant: its result, or the line with which vLLM refuses to start it; ``all_full``: no hybrid manager."""

    variant: str
    result: Result | None
    refusal: str | None = None
    all_full: bool = False


def _of_summary(cell: Callable[[Mapping[str, Any]], str]) -> Cell:
    return lambda result: cell(result.summary)


_ROWS: tuple[tuple[str, Cell], ...] = (
    ("groups", _of_summary(lambda s: number(s["num_groups"]))),
    ("blocks", _of_summary(lambda s: number(s["num_blocks"]))),
    ("pool per GPU", lambda result: format_bytes(result.plan.pool_bytes)),
    ("KV cache size (tokens)", _of_summary(lambda s: number(s["kv_cache_size_tokens"]))),
    ("max concurrency", _of_summary(lambda s: f"{s['max_concurrency']:.2f}x")),
    ("requests finished", _of_summary(lambda s: f"{number(s['finished'])} of {number(s['requests'])}")),
    ("running, peak", _of_summary(per_role(lambda s: number(s["peak_running"])))),
    ("running, mean", _of_summary(per_role(lambda s: number(s["mean_running"])))),
    ("blocks used, peak", _of_summary(per_role(lambda s: share(s["peak_used_blocks"], s["num_blocks"] - 1)))),
    ("blocks used, mean", _of_summary(per_role(lambda s: share(s["mean_used_blocks"] or 0, s["num_blocks"] - 1)))),
    ("prefix cache hits", _of_summary(lambda s: share(s["prefix_cache_hit_tokens"], s["prefix_cache_queries_tokens"]))),
    ("preemptions", _of_summary(lambda s: number(s["preemptions"]))),
    ("output tokens/s", _of_summary(lambda s: number(s["output_tokens_per_s"]))),
    ("makespan", _of_summary(lambda s: seconds(s["makespan_s"]))),
)
_MEASURED_ROWS: tuple[tuple[str, Cell], ...] = (
    ("requests measured", _of_summary(lambda s: number(s["measured"]["requests"]))),
    ("measured from", _of_summary(lambda s: seconds(s["measured"]["after_s"]))),
    ("hits, measured", _of_summary(lambda s: share(s["measured"]["prefix_cache_hit_rate"] or 0, 1))),
)
"""Where a part of each run is measured, the rates and latencies below are of it too."""


def compare_data(scenario: Scenario, outcomes: Sequence[Outcome]) -> dict[str, Any]:
    """The comparison as JSON-ready data: per variant its changes, its summary or refusal, where its results lie."""
    changes = scenario.variant_changes()
    return {
        "name": scenario.name,
        "question": scenario.question,
        "variants": [
            {
                "variant": outcome.variant,
                "changes": changes[outcome.variant],
                "refused": outcome.refusal,
                "summary": outcome.result.summary if outcome.result else None,
                "folder": variant_folder(outcome.variant) if outcome.result else None,
            }
            for outcome in outcomes
        ],
    }


def variant_folder(variant: str) -> str:
    """Where below the folder of a comparison a variant's own results lie.

    >>> variant_folder("all-full"), variant_folder("../half price")
    ('variants/all-full', 'variants/-half-price')
    """
    return f"{VARIANTS}/{sub('[^A-Za-z0-9_-]+', '-', variant)}"


def compare_tables(scenario: Scenario, outcomes: Sequence[Outcome], destination: str) -> list[Table]:
    """The tables ``compare`` prints: counts and rates, then latencies."""
    header = ("", *(outcome.variant for outcome in outcomes))
    notes = [f"{outcome.variant}: {outcome.refusal}" for outcome in outcomes if outcome.refusal]
    expected = [f"expected: {scenario.expected}"] if scenario.expected else []
    measured = any(outcome.result and "measured" in outcome.result.summary for outcome in outcomes)
    rows = (*_ROWS, *_MEASURED_ROWS) if measured else _ROWS
    counted = [(label, *(_cell(outcome, cell) for outcome in outcomes)) for label, cell in rows]
    timed = [
        (f"{label} {column}", *(_cell(outcome, _latency(key, column)) for outcome in outcomes))
        for key, label in (("ttft_s", "TTFT"), ("tpot_s", "TPOT"), ("e2e_s", "E2E"))
        for column in PERCENTILES
    ]
    return [
        Table(scenario.question or scenario.name, header, counted, [*notes, *expected]),
        Table(f"Latencies ({latency_class(outcomes)})", header, timed, [f"results in {destination}"]),
    ]


def latency_class(outcomes: Sequence[Outcome]) -> str:
    """How far the times can be trusted: once where all variants agree, otherwise variant by variant."""
    return agreed({one.variant: str(one.result.summary["latency_class"]) for one in outcomes if one.result})


def _latency(key: str, column: str) -> Cell:
    return _of_summary(lambda summary: seconds(summary[key][column]))


def _cell(outcome: Outcome, cell: Cell) -> str:
    return cell(outcome.result) if outcome.result else "refused"
