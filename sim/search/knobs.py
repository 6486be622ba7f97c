"""What a search turns: the rate of arrivals, the number of clients, the memory, the number of replicas."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from sim.errors import InputError
from sim.scenario import Scenario
from workloads import open_workload

Changes = dict[str, Any]
PROMPTS_PER_CLIENT = 10
"""Requests of a generated workload for each client at least, as benchmarks have it."""
AT_ONCE = 1e-6
"""A time scale that leaves a trace's order and takes away its pauses."""


@dataclass(frozen=True, slots=True)
class Knob:
    """One number of a scenario: ``start`` reads it, ``set`` says which keys to change for that start and a value.

    ``most``: the largest value that meets the targets is wanted, else the smallest.
    """

    name: str
    unit: str
    most: bool
    whole: bool
    start: Callable[[Scenario], float]
    set: Callable[[Scenario, float, float], Changes]


def _rate(scenario: Scenario) -> float:
    """Requests per second as the scenario has them: for sessions, starts of sessions."""
    arrival = scenario.workload.get("synthetic", scenario.workload).get("arrival")
    if isinstance(arrival, dict) and "rate_per_s" in arrival:
        return float(arrival["rate_per_s"])
    workload = open_workload(scenario.workload, scenario.base_dir, scenario.seed)
    for _ in workload.batches(1 << 14):
        pass
    described = workload.describe()
    if not described["span_s"]:
        raise InputError(
            "all requests arrive at once, so there is no rate to change; give arrival: {kind: poisson, rate_per_s: 1} "
            "or search --over concurrency",
            where="workload",
        )
    return float(described["requests"] / described["span_s"])


def _set_rate(scenario: Scenario, start: float, rate: float) -> Changes:
    if "synthetic" in scenario.workload:
        return {"workload.synthetic.arrival.rate_per_s": rate}
    if scenario.workload["arrival"]:
        return {"workload.arrival.rate_per_s": rate}
    return {"workload.time_scale": scenario.workload["time_scale"] * start / rate}


def _set_clients(scenario: Scenario, _: float, clients: float) -> Changes:
    number = int(clients)
    if "synthetic" not in scenario.workload:
        return {"workload.max_concurrency": number, "workload.time_scale": AT_ONCE}
    requests = max(int(scenario.workload["synthetic"]["requests"]), PROMPTS_PER_CLIENT * number)
    return {
        "workload.max_concurrency": number,
        "workload.synthetic.requests": requests,
        "workload.synthetic.arrival": {"kind": "all_at_once"},
    }


def _memory(scenario: Scenario) -> tuple[str, float]:
    """The key that says how much memory there is, and its value."""
    sections = scenario.sections()["memory"]
    (key,) = sections
    return f"memory.{key}", float(sections[key])


def _set_memory(scenario: Scenario, _: float, amount: float) -> Changes:
    key, _ = _memory(scenario)
    return {key: amount if key.endswith("gib") else round(amount)}


def _engines(scenario: Scenario) -> float:
    """Replicas that do all; of prefill and decode there are two numbers."""
    if scenario.replicas.prefill is not None:
        raise InputError(
            "prefill and decode replicas are two numbers; sweep over replicas.prefill and replicas.decode instead",
            where="--over gpus",
        )
    return float(scenario.num_engines)


MEMORY_UNITS = {
    "memory.available_kv_cache_memory_gib": "GiB per GPU",
    "memory.kv_cache_memory_bytes": "bytes per GPU",
    "memory.num_gpu_blocks_override": "blocks",
}


def knob_of(scenario: Scenario, name: str) -> Knob:
    """The knob of a name, in the unit the scenario gives memory in."""
    knob = KNOBS[name]
    return replace(knob, unit=MEMORY_UNITS[_memory(scenario)[0]]) if name == "memory" else knob


KNOBS = {
    knob.name: knob
    for knob in (
        Knob("rate", "requests/s", True, False, _rate, _set_rate),
        Knob(
            "concurrency",
            "requests in flight",
            True,
            True,
            lambda scenario: float(scenario.workload["max_concurrency"] or 8),
            _set_clients,
        ),
        Knob("memory", "of the KV cache", False, False, lambda scenario: _memory(scenario)[1], _set_memory),
        Knob(
            "gpus",
            "replicas",
            False,
            True,
            _engines,
            lambda scenario, _, count: {
                "replicas.count" if scenario.engine.data_parallel_size == 1 else "engine.data_parallel_size": int(count)
            },
        ),
    )
}
