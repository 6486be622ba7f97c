"""A serving point simulated: its scenario, its means, and how they depend on what a step's work costs.

Clients that wait for their answer and do not think leave the order of things to the scheduler: which requests share
which step does not depend on how long steps take. So every mean is linear in the costs of a :class:`Price`, and one run
per cost, in which nothing else costs anything, tells by how much.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sim.calibrate.points import Point
from sim.core.output import PEAK_USED_BLOCKS, PREEMPTION_COUNT
from sim.core.price import Price
from sim.engine import WINDOW, Engine
from sim.hardware import find_gpu
from sim.machine import Machine, make_plan
from sim.planning import plan_kv_cache
from sim.scenario import Document, Scenario, build_scenario
from sim.step_time import make_step_time
from workloads import open_clients, open_workload

Floats = NDArray[np.float64]

MEANS: Final = ("mean_ttft_ms", "mean_tpot_ms", "output_throughput")
"""What is compared with a measurement, in this order; of throughput its inverse, which is linear in time too."""
_SCALARS: Final = ("fixed_ns", "token_ns", "request_ns", "expert_ns")
_UNIT = 1e4


def point_scenario(base: Mapping[str, Any], point: Point, step_time: Mapping[str, Any], seed: int = 0) -> Scenario:
    """The scenario of a point: ``base`` (model, hardware, engine, memory) with what the point changes."""
    value = {key: dict(section) if isinstance(section, Mapping) else section for key, section in base.items()}
    for section, changes in point.changes.items():
        value[section] = dict(changes) if section == "memory" else {**value.get(section, {}), **changes}
    longest = point.input_len[1] + point.output_len[1] + 1
    value["engine"] = {"max_model_len": longest, **value.get("engine", {})}
    value |= {"name": "point", "workload": point.workload(), "step_time": dict(step_time), "seed": seed}
    return build_scenario(Document(point.place, value), Path.cwd())


class Served(NamedTuple):
    """What a simulated point came to: its means, its requests and their output tokens, and the pool's use."""

    means: Floats
    num_requests: int
    output_tokens: int
    peak_blocks: int
    num_blocks: int
    preemptions: int


def serve(scenario: Scenario, price: Price | None = None) -> Served:
    """Simulate a scenario's traffic on one replica; with ``price`` steps cost that, and answers arrive at once."""
    gpu = find_gpu(scenario.gpu) if scenario.gpu else None
    step_time = make_step_time(scenario.step_time, scenario.model, scenario.engine, gpu)
    delay_ns = step_time.first_token_ns if price is None else 0
    plan = plan_kv_cache(scenario.model, scenario.engine, scenario.memory)
    machine = Machine(
        make_plan(plan, scenario.engine, scenario.seed), step_time.price if price is None else price, plan.num_blocks
    )
    workload = open_workload(scenario.workload, scenario.base_dir, scenario.seed)
    clients = open_clients(scenario.workload, scenario.base_dir, scenario.seed)
    engine = Engine(machine, workload.batches(WINDOW), clients=clients, answer_delay_ns=delay_ns)
    engine.run()
    columns = engine.records.request_columns(engine.ids, engine.sessions, delay_ns)
    outputs = int(columns["output_tokens"].sum())
    tpot_s = columns["tpot_s"][~np.isnan(columns["tpot_s"])]  # answers of one token have none
    lasted = float(columns["finish_s"].max() - columns["arrival_s"].min())
    total = machine.state.output.counters
    return Served(
        np.array([1e3 * columns["ttft_s"].mean(), 1e3 * tpot_s.mean() if tpot_s.size else 0.0, lasted / outputs]),
        len(columns["ttft_s"]),
        outputs,
        int(total[PEAK_USED_BLOCKS]),
        plan.num_blocks - 1,
        int(total[PREEMPTION_COUNT]),
    )


def cost_vector(price: Price) -> Floats:
    """The costs that a price is linear in, as one vector."""
    return np.array([*(getattr(price, name) for name in _SCALARS), *price.pair_ns, *price.read_ns], np.float64)


def _unit_price(price: Price, cost: int) -> Price:
    """A price in which only one cost is not 0."""
    values = np.zeros(len(cost_vector(price)))
    values[cost] = _UNIT
    spans = len(_SCALARS) + price.window.size
    scalars: dict[str, Any] = dict(zip(_SCALARS, values.tolist(), strict=False))
    return price._replace(**scalars, pair_ns=values[len(_SCALARS) : spans], read_ns=values[spans:])


@dataclass(frozen=True, slots=True)
class Sensitivity:
    """What one nanosecond of each cost adds to a point: [costs, 3] in ms of TTFT, ms of TPOT, s per output token.

    ``turns`` requests per client and output token; ``limited``: another size of the pool would have changed it.
    """

    per_ns: Floats
    turns: float
    peak_blocks: int
    limited: bool

    def rows(self, prices: Sequence[Price]) -> Floats:
        """What each price adds, and last what a millisecond of delay before a first token does: [prices + 1, 3]."""
        delay = [1.0, 0.0, self.turns / 1e3]
        return np.array([*(cost_vector(price) @ self.per_ns for price in prices), delay])


def sensitivity(scenario: Scenario, price: Price) -> Sensitivity:
    """Run a closed-loop scenario once per cost of ``price``, each through the whole engine."""
    costs = np.flatnonzero(cost_vector(price)).tolist()
    runs = {cost: serve(scenario, _unit_price(price, cost)) for cost in costs}
    rows = np.zeros((cost_vector(price).size, 3))
    for cost, run in runs.items():
        rows[cost] = run.means / _UNIT
    one = runs[costs[0]]
    turns = one.num_requests / scenario.workload["max_concurrency"] / one.output_tokens
    return Sensitivity(rows, turns, one.peak_blocks, limited=one.peak_blocks == one.num_blocks or one.preemptions > 0)


class Sensitivities:
    """Sensitivities that are run once: GPUs, ranks and spare memory change the costs of a step, not its make-up."""

    def __init__(self) -> None:
        self._unlimited: dict[str, Sensitivity] = {}

    def of(self, scenario: Scenario, price: Price) -> Sensitivity:
        """The sensitivity of a scenario, from an equal one run before where there is one."""
        engine = replace(
            scenario.engine,
            tensor_parallel_size=1,
            kv_cache_dtype="auto",
            device_capability="9.0",
            max_num_seqs=min(scenario.engine.max_num_seqs, scenario.workload["max_concurrency"]),
        )
        costs = np.flatnonzero(cost_vector(price)).tolist()
        key = repr((scenario.model.name, engine, scenario.workload, scenario.seed, price.window.tolist(), costs))
        known = self._unlimited.get(key)
        num_blocks = plan_kv_cache(scenario.model, scenario.engine, scenario.memory).num_blocks
        if known is None or known.peak_blocks >= num_blocks - 1:
            known = sensitivity(scenario, price)
            if not known.limited:
                self._unlimited[key] = known
        return known
