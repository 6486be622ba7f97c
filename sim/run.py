"""A scenario in, a result out: the Python API, and the one place where all parts meet."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple, TextIO

from sim.core import output as core
from sim.core.state import KV_CONSUMER, KV_PRODUCER
from sim.disaggregation import refuse_undisaggregated, seen_by_clients, split_summary
from sim.engine import WINDOW, DisaggregatedFleet, Engine, Fleet
from sim.errors import InputError
from sim.hardware import find_gpu
from sim.invariants import check_invariants
from sim.logs import Logs, LogStreams
from sim.machine import ALONE, Machine, Role, make_plan
from sim.measure import Measure
from sim.outcome import Result, make_result
from sim.planning import KVCachePlan, plan_kv_cache
from sim.replicas import merged_columns, merged_summary, share_of
from sim.scenario import Scenario
from sim.scenario.schema import ReplicaKeys
from sim.step_time import StepTime, make_step_time
from sim.story import Watcher
from workloads import Clients, Workload, open_clients, open_workload
from workloads.batch import RequestBatch

__all__ = ["ProgressState", "Result", "run_scenario"]


@dataclass(frozen=True, slots=True)
class ProgressState:
    """How far a run is: simulated seconds, requests finished, and how many to expect (None: unknown)."""

    now_s: float
    finished: int
    expected: int | None


def run_scenario(
    scenario: Scenario,
    *,
    progress: Callable[[ProgressState], None] | None = None,
    check: bool = False,
    step_log: TextIO | None = None,
    kv_events: TextIO | None = None,
    explain: bool = False,
    workload: Workload | None = None,
    watchers: Sequence[Watcher] = (),
) -> Result:
    """Run a scenario's workload to its end, on each replica its share.

    ``progress`` is called now and then; ``check`` verifies the invariants at every pause of the machine; ``step_log``
    receives the step log, ``kv_events`` the KV cache events, ``watchers`` see every step (the run is slower then);
    ``explain`` says why prompt tokens were not hit; ``workload`` is the scenario's own, opened before. Raises
    InputError and WorkloadError for input that cannot be used, RefusalError for what vLLM refuses at start, StallError
    when requests are left that nothing can unblock.
    """
    scenario.require_workload()
    workload = workload or open_workload(scenario.workload, scenario.base_dir, scenario.seed)
    _require_something_to_measure(scenario.measure, workload.expected_requests)
    if scenario.replicas.servers > 1:
        apart = scenario.replicas.prefill is not None
        if step_log or kv_events or watchers:
            key = "replicas.prefill" if apart else "replicas.count"
            raise InputError("steps are shown of one replica; give replicas: {count: 1}", where=key)
        if apart:
            return _run_apart(scenario, workload, progress, check, explain)
        return _merged(_run_fleet(scenario, workload, progress, check, explain), scenario.measure)
    replicas = scenario.engine.data_parallel_size
    if replicas > 1 and scenario.workload["max_concurrency"]:
        raise InputError(
            "clients that wait for answers are simulated with one replica; give data_parallel_size: 1 and "
            "one replica's share of the clients, or replicas: {count: n}",
            where="workload.max_concurrency",
        )
    results: list[Result] = []
    for replica in range(replicas):
        logs = LogStreams(step_log, kv_events, replica if replicas > 1 else None, watchers)
        finished = sum(result.summary["finished"] for result in results)
        results.append(_run_replica(scenario, workload, replica, _later(progress, finished), check, explain, logs))
    return results[0] if replicas == 1 else _merged(results, scenario.measure)


def _require_something_to_measure(measure: Measure, requests: int | None) -> None:
    warm = measure.warm_start
    if warm is not None and requests is not None and warm.requests >= requests:
        raise InputError(
            f"got {warm.requests:,} and the workload has {requests:,} requests, so none is left to measure; give fewer",
            where="measure.warm_start.requests",
        )


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


def _run_fleet(
    scenario: Scenario,
    workload: Workload,
    progress: Callable[[ProgressState], None] | None,
    check: bool,
    explain: bool,
) -> list[Result]:
    """Run all replicas behind their router under one clock."""
    plan, step_time = _planned(scenario)
    machines = [_machine(scenario, plan, step_time, explain=explain) for _ in range(scenario.replicas.count)]
    fleet = Fleet(
        machines,
        workload.batches(WINDOW),
        scenario.replicas.routing,
        load_bound=scenario.replicas.load_bound,
        on_drain=_observer(machines, workload, progress, check),
        clients=open_clients(scenario.workload, scenario.base_dir, scenario.seed),
        answer_delay_ns=step_time.first_token_ns,
    )
    fleet.run()
    parts = [make_result(scenario, plan, step_time, part.machine, part, workload) for part in fleet.parts()]
    return [replace(part, summary={**part.summary, "routing": scenario.replicas.routing}) for part in parts]


def _run_apart(
    scenario: Scenario,
    workload: Workload,
    progress: Callable[[ProgressState], None] | None,
    check: bool,
    explain: bool,
) -> Result:
    """Run prefill and decode replicas under one clock; the result as clients see it."""
    if explain:
        raise InputError(
            "hits are explained of replicas that do all; give replicas: {count: n}", where="replicas.prefill"
        )
    plan, step_time = _planned(scenario)
    keys = scenario.replicas
    prefill = [_machine(scenario, plan, step_time, role=Role(KV_PRODUCER)) for _ in range(keys.prefill or 0)]
    decode = [_machine(scenario, plan, step_time, role=_fetching(keys, plan)) for _ in range(keys.decode or 0)]
    refuse_undisaggregated(decode[0].plan, resets=bool(scenario.resets))
    fleet = DisaggregatedFleet(
        prefill,
        decode,
        workload.batches(WINDOW),
        keys.routing,
        keys.decode_routing or "least_loaded",
        load_bound=keys.load_bound,
        on_drain=_observer(decode, workload, progress, check),
        clients=open_clients(scenario.workload, scenario.base_dir, scenario.seed),
        answer_delay_ns=step_time.first_token_ns,
    )
    fleet.run()
    at_once = replace(step_time, first_token_ns=0)  # what the client's side adds comes once, after the first token
    results = [
        make_result(scenario, plan, at_once if number < len(prefill) else step_time, part.machine, part, workload)
        for number, part in enumerate(fleet.parts())
    ]
    first, others = results[: len(prefill)], results[len(prefill) :]
    ordinals = [part.records.ordinals() for part in fleet.parts()]
    requests = seen_by_clients(
        [each.requests for each in first],
        [each.requests for each in others],
        (ordinals[: len(prefill)], ordinals[len(prefill) :]),
        fleet.loads(),
    )
    merged = _merged(results, scenario.measure)
    summaries = [each.summary for each in first], [each.summary for each in others]
    summary = split_summary(*summaries, requests, scenario.measure)
    return replace(merged, summary={**summary, "routing": keys.routing}, requests=requests, step_time=step_time)


def _fetching(keys: ReplicaKeys, plan: KVCachePlan) -> Role:
    """What fetching takes: every GPU fetches its own part of a block at the same time."""
    per_block = keys.transfer_s_per_block
    if keys.transfer_gb_per_s is not None:
        per_block = plan.block_bytes / (keys.transfer_gb_per_s * 1e9)
    return Role(KV_CONSUMER, round((keys.transfer_latency_s or 0.0) * 1e9), round((per_block or 0.0) * 1e9))


def _observer(
    counted: Sequence[Machine],
    workload: Workload,
    progress: Callable[[ProgressState], None] | None,
    check: bool,
) -> Callable[[Machine], None]:
    """What is done whenever a replica's records are taken over; ``counted``: those whose requests are answers."""

    def on_drain(machine: Machine) -> None:
        if check:
            check_invariants(machine)
        if progress is not None:
            finished = sum(int(each.state.output.counters[core.FINISHED_COUNT]) for each in counted)
            progress(ProgressState(machine.now_ns / 1e9, finished, workload.expected_requests))

    return on_drain


def _planned(scenario: Scenario) -> tuple[KVCachePlan, StepTime]:
    plan = plan_kv_cache(scenario.model, scenario.engine, scenario.memory)
    gpu = find_gpu(scenario.gpu) if scenario.gpu else None
    return plan, make_step_time(scenario.step_time, scenario.model, scenario.engine, gpu)


def _machine(
    scenario: Scenario,
    plan: KVCachePlan,
    step_time: StepTime,
    *,
    explain: bool = False,
    streams: LogStreams | None = None,
    role: Role = ALONE,
) -> Machine:
    return Machine(
        make_plan(plan, scenario.engine, scenario.seed, role),
        step_time.price,
        plan.num_blocks,
        log_tables=streams is not None and streams.step_log is not None,
        log_events=streams is not None and streams.kv_events is not None,
        resets=scenario.resets,
        explain=explain,
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
    plan, step_time = _planned(scenario)
    machine = _machine(scenario, plan, step_time, explain=explain, streams=streams)
    batches = share_of(workload.batches(WINDOW), replica, scenario.engine.data_parallel_size)
    clients = open_clients(scenario.workload, scenario.base_dir, scenario.seed)
    serving = _Serving(batches, workload.expected_requests, clients, step_time.first_token_ns)
    engine = _serve(machine, serving, progress, check, Logs(plan, streams))
    return make_result(scenario, plan, step_time, machine, engine, workload)


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
