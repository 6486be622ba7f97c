"""Time outside the machine: arrivals as SimPy events, and the replica's process that runs from event to event.

SimPy owns what comes from outside; between two outside events the compiled core runs alone, up to the horizon: the
time of the next outside event. A trace is handed over a window at a time, and the first arrival of the next window is
such an event. Whoever reads the machine's state is an outside event too.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from typing import Any

import numpy as np
import simpy

from sim.core.advance import HORIZON, IDLE, RECORDS_FULL, STALLED, STEPPED
from sim.core.inbox import Arrivals
from sim.core.output import FINISHED_COUNT, OUTPUT_COUNT, PREEMPTION_COUNT
from sim.core.state import NEVER
from sim.errors import InputError, StallError
from sim.explanation import Explanation
from sim.machine import Machine
from sim.records import Records
from workloads.batch import RequestBatch

WINDOW = 4096
"""Requests handed to the machine at a time."""

FUTILE_STEPS = 50_000
"""Steps with preemptions and without a single output, in a row, after which requests are taken to starve each other."""

Observer = Callable[[Machine], None]


class Engine:
    """One replica serving a stream of requests.

    ``on_step`` is called after every schedule() that scheduled something, before its outputs are processed (the run
    then goes one step at a time, with identical results); ``on_drain`` whenever records are taken over, with the
    machine at a consistent point: the place for progress bars and invariants.
    """

    def __init__(
        self,
        machine: Machine,
        batches: Iterator[RequestBatch],
        *,
        on_step: Observer | None = None,
        on_drain: Observer | None = None,
    ) -> None:
        self.machine = machine
        self.records = Records()
        self.explanation = Explanation(machine.plan.block_size.size, machine.plan.hash_lookahead)
        self.ids: list[str] = []
        self.sessions: list[str | None] = []
        self.rejected: list[str] = []
        self.first_arrival_ns: int | None = None
        self._last_output = (0, 0, 0)
        self._all_arrived = False
        self._batches = batches
        self._on_step = on_step
        self._on_drain = on_drain
        self._env = simpy.Environment()
        self._woken = self._env.event()

    def run(self) -> None:
        """Serve the whole stream. Raises StallError when requests are left that can never be scheduled."""
        self._env.process(self._arrivals())
        self._env.process(self._serve())
        self._env.run()

    def _arrivals(self) -> Generator[simpy.Event, Any, None]:
        """Hand over each window when its first request arrives, so that the next one is always a known event."""
        for batch in self._batches:
            wait = int(batch.arrival_ns[0]) - int(self._env.now)
            yield self._env.timeout(max(wait, 0))
            if self.first_arrival_ns is None:
                self.first_arrival_ns = int(batch.arrival_ns[0])
            self.machine.submit(self._accepted(batch))
            self._woken.succeed()
            self._woken = self._env.event()
        self._all_arrived = True

    def _accepted(self, batch: RequestBatch) -> Arrivals:
        """The requests of a batch as the core takes them, without those that vLLM refuses.

        It refuses a prompt of max_model_len tokens or more, and an input to the encoder that no batch holds.

        vllm 0.33.0 v1/engine/input_processor.py:557 and :635.
        """
        plan = self.machine.plan
        if plan.encoder_budget == 0 and batch.encoder_tokens.any():
            first = batch.ids[int(np.flatnonzero(batch.encoder_tokens)[0])]
            raise InputError(f"request {first!r} has encoder_tokens, but the model has no encoder", where="workload")
        if (batch.think_ns >= 0).any():
            first = batch.ids[int(np.flatnonzero(batch.think_ns >= 0)[0])]
            raise InputError(f"request {first!r} waits for an answer, which no run simulates yet", where="workload")
        fits = (batch.prompt_tokens < plan.max_model_len) & (batch.encoder_tokens <= plan.encoder_budget)
        if not fits.all():
            self.rejected += [batch.ids[i] for i in np.flatnonzero(~fits)]
            batch = batch.take(np.flatnonzero(fits))
        start = len(self.ids)
        self.ids += batch.ids
        self.sessions += batch.sessions
        return Arrivals(
            ordinal=np.arange(start, len(self.ids), dtype=np.int64),
            arrival_ns=batch.arrival_ns,
            prompt_tokens=batch.prompt_tokens,
            output_tokens=batch.output_tokens,
            max_tokens=batch.max_tokens,
            priority=batch.priority,
            tie_rank=batch.tie_rank,
            skip_cache=batch.skip_cache,
            encoder_tokens=np.where(batch.encoder_tokens > 0, batch.encoder_tokens, plan.encoder_tokens),
            salt=batch.salt,
            span_offsets=batch.span_offsets,
            span_content=batch.span_content,
            span_tokens=batch.span_tokens,
        )

    def _serve(self) -> Generator[simpy.Event, Any, None]:
        """Run the machine from outside event to outside event until neither has anything left."""
        while True:
            upcoming = self._env.peek()
            horizon = NEVER if upcoming == float("inf") else int(upcoming)
            reason = self.machine.advance(horizon, one_step=self._on_step is not None)
            if reason == STEPPED and self._on_step is not None:
                self._on_step(self.machine)
            elif reason == HORIZON:
                self._drain()
                yield self._env.timeout(horizon - int(self._env.now))
            elif reason == RECORDS_FULL:
                self._drain()
                self._check_progress()
            elif reason in (IDLE, STALLED):
                self._drain()
                if not self._all_arrived:
                    yield self._woken
                elif reason == STALLED:
                    raise StallError(self._stall_message("nothing in flight and no arrival left"))
                else:
                    return

    def _drain(self) -> None:
        self.records.drain(self.machine.state.output)
        self.explanation.drain(self.machine.state.seen)
        if self._on_drain is not None:
            self._on_drain(self.machine)

    def _check_progress(self) -> None:
        """Raise StallError when requests only take each other's blocks: vLLM would go on like that for ever."""
        counters = self.machine.state.output.counters
        outputs, preemptions, step = self._last_output
        if counters[OUTPUT_COUNT] != outputs or counters[PREEMPTION_COUNT] == preemptions:
            self._last_output = (int(counters[OUTPUT_COUNT]), int(counters[PREEMPTION_COUNT]), self.machine.num_steps)
        elif self.machine.num_steps - step > FUTILE_STEPS:
            raise StallError(
                self._stall_message(f"requests preempt each other and none has got a token for {FUTILE_STEPS} steps")
            )

    def _stall_message(self, why: str) -> str:
        machine = self.machine
        finished = int(machine.state.output.counters[FINISHED_COUNT])
        return (
            f"the simulation stalled at {machine.now_ns / 1e9:.3f} s: {why}; {machine.num_waiting} waiting, "
            f"{machine.num_running} running, {finished} finished; {machine.stall_reason(self.ids)}; "
            "give it more blocks or a smaller max_num_seqs"
        )
