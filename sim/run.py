"""A scenario in, a result out: the Python API, and the one place where all parts meet."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, TextIO

import numpy as np

from sim.core import output as core
from sim.core.state import EVICTED_BLOCKS
from sim.engine import WINDOW, Engine
from sim.errors import InputError
from sim.hardware import find_gpu
from sim.invariants import check_invariants
from sim.logs import Logs, LogStreams
from sim.machine import Machine, make_plan
from sim.measure import Measure
from sim.planning import KVCachePlan, plan_kv_cache
from sim.pool_shares import share_columns
from sim.records import Records
from sim.replicas import merged_columns, merged_summary, share_of
from sim.scenario import Scenario
from sim.step_time import StepTime, make_step_time
from workloads import Clients, Workload, open_clients, open_workload
from workloads.batch import RequestBatch


@dataclass(frozen=True, slots=True)
class ProgressState:
    """How far a run is: simulated seconds, requests finished, and how many to expect (None: unknown)."""

    now_s: float
    finished: int
    expected: int | None


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


def run_scenario(
    scenario: Scenario,
    *,
    progress: Callable[[ProgressState], None] | None = None,
    check: bool = False,
    step_log: TextIO | None = None,
    kv_events: TextIO | None = None,
    explain: bool = False,
    workload: Workload | None = None,
) -> Result:
    """Run a scenario's workload to its end, on each replica its share.

    ``progress`` is called now and then; ``check`` verifies the invariants at every pause of the machine; ``step_log``
    receives the step log, ``kv_events`` the KV cache events (the run is slower then); ``explain`` says why prompt
    tokens were not hit; ``workload`` is the scenario's own, opened before. Raises InputError and WorkloadError for
    input that cannot be used, RefusalError for what vLLM refuses at start, StallError when requests are left that
    nothing can unblock.
    """
    scenario.require_workload()
    workload = workload or open_workload(scenario.workload, scenario.base_dir, scenario.seed)
    replicas = scenario.engine.data_parallel_size
    if replicas > 1 and scenario.workload["max_concurrency"]:
        raise InputError(
            "clients that wait for answers are simulated with one replica; give data_parallel_size: 1 and "
            "one replica's share of the clients",
            where="workload.max_concurrency",
        )
    results: list[Result] = []
    for replica in range(replicas):
        logs = LogStreams(step_log, kv_events, replica if replicas > 1 else None)
        finished = sum(result.summary["finished"] for result in results)
        results.append(_run_replica(scenario, workload, replica, _later(progress, finished), check, explain, logs))
    return results[0] if replicas == 1 else _merged(results, scenario.measure)


def _later(progress: Callable[[ProgressState], None] | None, finished: int) -> Callable[[ProgressState], None] | None:
    """Progress that counts the requests other replicas finished before."""
    if progress is None or finished == 0:
        return progress
    return lambda state: progress(replace(state, finished=state.finished + finished))


def _merged(results: Sequence[Result], measure: Measure) -> Result:
    """The results of all replicas as one."""
    requests = merged_columns([result.requests for result in results])
    return replace(
        results[0],
        summary=merged_summary([result.summary for result in results], requests, measure),
        requests=requests,
        steps=merged_columns([result.steps for result in results]),
        step_stride=max(result.step_stride for result in results),
        notes=[f"replica {replica}: {note}" for replica, result in enumerate(results) for note in result.notes],
    )


def _run_replica(
    scenario: Scenario,
    workload: Workload,
    replica: int,
    progress: Callable[[ProgressState], None] | None,
    check: bool,
    explain: bool,
    streams: LogStreams,
) -> Result:
    """Run one replica on its share of the workload."""
    plan = plan_kv_cache(scenario.model, scenario.engine, scenario.memory)
    gpu = find_gpu(scenario.gpu) if scenario.gpu else None
    step_time = make_step_time(scenario.step_time, scenario.model, scenario.engine, gpu)
    machine = Machine(
        make_plan(plan, scenario.engine, scenario.seed),
        step_time.price,
        plan.num_blocks,
        log_tables=streams.step_log is not None,
        log_events=streams.kv_events is not None,
        resets=scenario.resets,
        explain=explain,
    )
    batches = share_of(workload.batches(WINDOW), replica, scenario.engine.data_parallel_size)
    clients = open_clients(scenario.workload, scenario.base_dir, scenario.seed)
    serving = _Serving(batches, workload.expected_requests, clients, step_time.first_token_ns)
    engine = _serve(machine, serving, progress, check, Logs(plan, streams))
    return _result(scenario, plan, step_time, machine, engine, workload)


class _Serving(NamedTuple):
    """What one engine serves: its requests, how many to expect, who sends them, and how late answers reach them."""

    batches: Iterator[RequestBatch]
    expected: int | None
    clients: Clients | None
    answer_delay_ns: int


def _serve(
    machine: Machine,
    serving: _Serving,
    progress: Callable[[ProgressState], None] | None,
    check: bool,
    logs: Logs,
) -> Engine:
    """Run an engine over these requests with the observers asked for."""

    def on_drain(machine: Machine) -> None:
        if check:
            check_invariants(machine)
        if progress is not None:
            finished = int(machine.state.output.counters[core.FINISHED_COUNT])
            progress(ProgressState(machine.now_ns / 1e9, finished, serving.expected))

    on_step = logs.write_step if logs.wanted else None
    engine = Engine(
        machine,
        serving.batches,
        on_step=on_step,
        on_drain=on_drain,
        clients=serving.clients,
        answer_delay_ns=serving.answer_delay_ns,
    )
    logs.ids = engine.ids
    engine.run()
    logs.write_rest(machine)
    return engine


def _result(
    scenario: Scenario, plan: KVCachePlan, step_time: StepTime, machine: Machine, engine: Engine, workload: Workload
) -> Result:
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


def _counts(machine: Machine, engine: Engine) -> dict[str, Any]:
    """What was decided: exact, whatever the step times mean."""
    total = machine.state.output.counters
    queries, hits = int(total[core.QUERY_TOKENS]), int(total[core.HIT_TOKENS])
    return {
        "requests": len(engine.ids) + len(engine.rejected),
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


def _rates(machine: Machine, engine: Engine, records: Records) -> dict[str, Any]:
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


def _notes(engine: Engine, described: dict[str, Any]) -> list[str]:
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
