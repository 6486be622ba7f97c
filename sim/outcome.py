"""What a run found: counts that are exact, rates and latencies that follow from step times, and columns."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from sim.core import output as core
from sim.core.state import EVICTED_BLOCKS
from sim.engine import Engine, Part
from sim.machine import Machine
from sim.planning import KVCachePlan
from sim.pool_shares import share_columns
from sim.records import Records
from sim.scenario import Scenario
from sim.step_time import StepTime
from workloads import Workload


@dataclass(frozen=True, slots=True)
class Result:
    """What a run found.

    ``summary`` is ready for JSON. ``requests`` and ``steps`` are columns with units in their names, one row per
    finished request and per step (or per ``step_stride``-th step of a very long run). ``notes`` are remarks for people.
    """

    summary: dict[str, Any]
    requests: dict[str, Any]
    steps: dict[str, np.ndarray[Any, Any]]
    plan: KVCachePlan
    step_time: StepTime
    step_stride: int
    workload: dict[str, Any]
    notes: list[str] = field(default_factory=list)


def make_result(
    scenario: Scenario,
    plan: KVCachePlan,
    step_time: StepTime,
    machine: Machine,
    engine: Engine | Part,
    workload: Workload,
) -> Result:
    """The result of one replica's run."""
    requests = engine.records.request_columns(engine.ids, engine.sessions, step_time.first_token_ns)
    requests |= engine.explanation.request_columns(engine.records.ordinals())
    described = workload.describe()
    summary = {
        "name": scenario.name,
        "num_blocks": plan.num_blocks,
        "num_groups": len(plan.groups),
        "kv_cache_size_tokens": plan.kv_cache_size_tokens,
        "max_concurrency": plan.max_concurrency,
        **_counts(machine, engine),
        "lost_hits": engine.explanation.summary(),
        **_drafts(machine),
        **_rates(machine, engine, engine.records),
        **scenario.measure.latencies(requests),
        **scenario.measure.rates(requests),
        "latency_class": step_time.error_class,
        "workload": described,
    }
    notes = _notes(engine, described)
    return Result(
        summary=summary,
        requests=requests,
        steps=engine.records.step_columns() | share_columns(engine.records.shares(), plan),
        plan=plan,
        step_time=step_time,
        step_stride=engine.records.stride,
        workload=described,
        notes=notes,
    )


def _counts(machine: Machine, engine: Engine | Part) -> dict[str, Any]:
    """What was decided: exact, whatever the step times mean."""
    total = machine.state.output.counters
    queries, hits = int(total[core.QUERY_TOKENS]), int(total[core.HIT_TOKENS])
    return {
        "requests": engine.num_sent + len(engine.rejected),
        "finished": int(total[core.FINISHED_COUNT]),
        "truncated": int(total[core.TRUNCATED_COUNT]),
        "rejected": len(engine.rejected),
        "preemptions": int(total[core.PREEMPTION_COUNT]),
        "steps": machine.num_steps,
        "scheduled_tokens": int(total[core.SCHEDULED_COUNT]),
        "output_tokens": int(total[core.OUTPUT_COUNT]),
        "prefix_cache_queries_tokens": queries,
        "prefix_cache_hit_tokens": hits,
        "prefix_cache_hit_rate": hits / queries if queries else None,
        "resumed_prefix_cache_queries_tokens": int(total[core.RESUMED_QUERY_TOKENS]),
        "resumed_prefix_cache_hit_tokens": int(total[core.RESUMED_HIT_TOKENS]),
        "evicted_blocks": int(machine.state.pool.counters[EVICTED_BLOCKS]),
        "peak_used_blocks": int(total[core.PEAK_USED_BLOCKS]),
        "peak_running": int(total[core.PEAK_RUNNING]),
        "peak_waiting": int(total[core.PEAK_WAITING]),
        "prefix_cache_resets": sum(machine.resets_done()),
        "prefix_cache_resets_refused": machine.resets_done().count(False),
    }


def _drafts(machine: Machine) -> dict[str, Any]:
    """What became of the drafts, where any are made: ``mean_acceptance_length`` is that of vLLM's metrics.

    The token sampled anyway counts as one; outputs without drafts to verify are left out, padded ones are not.
    """
    if machine.plan.num_spec_tokens == 0:
        return {}
    total = machine.state.output.counters
    verified, accepted = int(total[core.VERIFIED_COUNT]), int(total[core.ACCEPTED_COUNT])
    return {
        "draft_tokens": int(total[core.DRAFT_COUNT]),
        "accepted_draft_tokens": accepted,
        "mean_acceptance_length": 1 + accepted / verified if verified else None,
    }


def _rates(machine: Machine, engine: Engine | Part, records: Records) -> dict[str, Any]:
    """What follows from the step times; means are weighted by them, ``busy_s`` is their sum, overlaps in full."""
    total = machine.state.output.counters
    first = engine.first_arrival_ns or 0
    makespan = max(int(total[core.LAST_FINISH]) - first, 0) / 1e9
    busy = records.busy_s
    return {
        "first_arrival_s": None if engine.first_arrival_ns is None else first / 1e9,
        "last_finish_s": int(total[core.LAST_FINISH]) / 1e9,
        "makespan_s": makespan,
        "busy_s": busy,
        "output_tokens_per_s": int(total[core.OUTPUT_COUNT]) / makespan if makespan else None,
        "requests_per_s": int(total[core.FINISHED_COUNT]) / makespan if makespan else None,
        "mean_running": records.running_seconds / busy if busy else None,
        "mean_used_blocks": records.used_block_seconds / busy if busy else None,
    }


def _notes(engine: Engine | Part, described: dict[str, Any]) -> list[str]:
    notes = []
    if engine.rejected:
        some = ", ".join(engine.rejected[:3])
        why = "prompt of max_model_len tokens or more, or an input to the encoder that no batch holds"
        notes.append(f"{len(engine.rejected)} requests rejected: {why} ({some} …)")
    if engine.records.stride > 1:
        notes.append(f"steps are those of every {engine.records.stride}th step: the run had too many to keep")
    for key, what in (("rows_changed", "changed"), ("rows_skipped", "skipped")):
        for reason, rows in (described.get(key) or {}).items():
            notes.append(f"{rows} rows of the trace were {what}: {reason.replace('_', ' ')}")
    return notes
