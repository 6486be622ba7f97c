"""What the simulator does on a scenario, step by step, as data: its step log and what it says about its blocks."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gpu_check.case import Case
from gpu_check.content.tokens import Text, texts
from sim.core.hashing import NO_KEY
from sim.core.state import (
    BATCH_HEAD,
    BATCH_REQUESTS,
    COMPUTED,
    E_SLOT,
    IN_FLIGHT,
    NULL_BLOCK,
    NUM_BATCHES,
    NUM_BLOCKS,
    REF,
)
from sim.engine import WINDOW, Engine
from sim.hardware import find_gpu
from sim.machine import Machine, make_plan
from sim.step_log import StepLog
from sim.step_time import make_step_time
from workloads import open_clients, open_workload
from workloads.batch import RequestBatch


@dataclass(frozen=True, slots=True)
class Recording:
    """Entries of the step log (:mod:`sim.step_log`), in order, and the text of every request by its id.

    Entries of steps have two keys more: ``processed``, for each scheduled request the tokens whose outputs the engine
    had seen when it was scheduled; and ``lost``, the blocks that from this step on nobody references and no hit can
    find, as far as they were not before.
    """

    entries: list[dict[str, Any]]
    texts: dict[str, Text]


def record(case: Case) -> Recording:
    """Run the scenario once more, one step at a time. Raises what a run raises."""
    scenario = case.scenario
    scenario.require_workload()
    gpu = find_gpu(scenario.gpu) if scenario.gpu else None
    step_time = make_step_time(scenario.step_time, scenario.model, scenario.engine, gpu)
    machine = Machine(
        make_plan(case.plan, scenario.engine, scenario.seed),
        step_time.price,
        case.plan.num_blocks,
        log_tables=True,
        resets=scenario.resets,
    )
    workload = open_workload(scenario.workload, scenario.base_dir, scenario.seed)
    known: dict[str, Text] = {}
    recorder = _Recorder(machine)
    engine = Engine(
        machine,
        _noting(workload.batches(WINDOW), known),
        on_step=recorder.on_step,
        clients=open_clients(scenario.workload, scenario.base_dir, scenario.seed),
        answer_delay_ns=step_time.first_token_ns,
    )
    recorder.log = StepLog(lambda ordinal: engine.ids[ordinal])
    engine.run()
    recorder.entries += recorder.log.finished(machine)
    return Recording(recorder.entries, known)


def _noting(batches: Iterator[RequestBatch], known: dict[str, Text]) -> Iterator[RequestBatch]:
    for batch in batches:
        known.update(texts(batch))
        yield batch


class _Recorder:
    """Writes down the entries of every step."""

    log: StepLog

    def __init__(self, machine: Machine) -> None:
        self.entries: list[dict[str, Any]] = []
        self._gone = np.ones(int(machine.state.pool.counters[NUM_BLOCKS]), np.bool_)

    def on_step(self, machine: Machine) -> None:
        """Take over what happened since the last step, and this one."""
        self.entries += self.log.entries(machine)
        self.entries[-1] |= {"processed": _processed(machine), "lost": self._lost(machine).tolist()}

    def _lost(self, machine: Machine) -> NDArray[np.int64]:
        pool = machine.state.pool
        blocks = self._gone.size
        gone = (pool.links[:blocks, REF] == 0) & (pool.key[:blocks] == NO_KEY)
        fresh = gone & ~self._gone
        fresh[NULL_BLOCK] = False
        self._gone = gone
        return np.flatnonzero(fresh)


def _processed(machine: Machine) -> list[int]:
    """Per request of the batch just scheduled, the tokens of batches that are done."""
    queues, requests = machine.state.queues, machine.state.requests
    count = queues.counters
    batch = int(count[BATCH_HEAD] + count[NUM_BATCHES] - 1) % queues.batch.shape[0]
    slots = queues.entries[batch, : queues.batch[batch, BATCH_REQUESTS], E_SLOT]
    found: list[int] = (requests[slots, COMPUTED] - requests[slots, IN_FLIGHT]).tolist()
    return found
