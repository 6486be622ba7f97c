"""Time outside the machine: arrivals as SimPy events, and the replica's process that runs from event to event.

SimPy owns what comes from outside; between two outside events the compiled core runs alone, up to the horizon: the
time of the next outside event. A trace is handed over a window at a time, and the first arrival of the next window is
such an event. Clients that wait for answers are processes, and the core then stops at every answer. Whoever reads the
machine's state is an outside event too.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from itertools import repeat
from typing import Any

import numpy as np
import simpy
from numpy.typing import NDArray

from sim.core.advance import FINISHED_SOME, RECORDS_FULL, STALLED, STEPPED
from sim.core.inbox import Arrivals
from sim.core.output import F_ORDINAL, FINISH_ROWS, FINISHED_COUNT, OUTPUT_COUNT, PREEMPTION_COUNT
from sim.core.state import NEVER
from sim.errors import InputError, StallError
from sim.explanation import Explanation
from sim.machine import Machine
from sim.records import Records
from workloads import Clients
from workloads.batch import RequestBatch, offsets, tie_ranks

WINDOW = 4096
"""Requests handed to the machine at a time."""

FUTILE_STEPS = 50_000
"""Steps with preemptions and without a single output, in a row, after which requests are taken to starve each other."""

LATE = simpy.events.EventPriority(2)
"""After everything else that happens at the same time: an arrival at t precedes a schedule at t."""

Observer = Callable[[Machine], None]


class Engine:
    """One replica serving a stream of requests.

    ``on_step`` is called after every schedule() that scheduled something, before its outputs are processed (the run
    then goes one step at a time, with identical results); ``on_drain`` whenever records are taken over, with the
    machine at a consistent point: the place for progress bars and invariants. With ``clients`` each request is sent by
    one that has had its last answer, ``answer_delay_ns`` after the engine was done with it.
    """

    def __init__(
        self,
        machine: Machine,
        batches: Iterator[RequestBatch],
        *,
        on_step: Observer | None = None,
        on_drain: Observer | None = None,
        clients: Clients | None = None,
        answer_delay_ns: int = 0,
    ) -> None:
        self.machine = machine
        self.records = Records()
        self.explanation = Explanation(machine.plan.block_size.size, machine.plan.hash_lookahead)
        self.ids: list[str] = []
        self.sessions: list[str | None] = []
        self.rejected: list[str] = []
        self.first_arrival_ns: int | None = None
        self._last_output = (0, 0, 0)
        self._batches = batches
        self._clients = clients
        self._answer_delay_ns = answer_delay_ns
        self._unsent: list[tuple[Arrivals, int]] = []
        self._unanswered: dict[int, simpy.Event] = {}
        self._announced = 0
        self._on_step = on_step
        self._on_drain = on_drain
        self._env = simpy.Environment()

    def run(self) -> None:
        """Serve the whole stream. Raises StallError when requests are left that can never be scheduled."""
        if self._clients is None:
            self._env.process(self._arrivals())
        else:
            requests = self._requests(self._clients)
            for _ in range(self._clients.number):
                self._env.process(self._client(requests))
        self._env.process(self._serve())
        self._env.run()

    def _arrivals(self) -> Generator[simpy.Event, Any, None]:
        """Hand over each window when its first request arrives, so that the next one is always a known event."""
        for batch in self._batches:
            wait = int(batch.arrival_ns[0]) - int(self._env.now)
            yield self._env.timeout(max(wait, 0))
            self._submit(self._accepted(batch)[0])

    def _requests(self, clients: Clients) -> Iterator[tuple[Arrivals, int, int]]:
        """The requests one by one: the window each is in, its row there, and the pause after its answer in ns."""
        for batch, pauses in clients.pauses(self._batches):
            window, kept = self._accepted(batch)
            yield from zip(repeat(window), range(kept.size), pauses[kept].tolist())

    def _client(self, requests: Iterator[tuple[Arrivals, int, int]]) -> Generator[simpy.Event, Any, None]:
        """One client: it sends the next request, waits for the answer, thinks, and so on until none is left."""
        for window, row, pause in requests:
            wait = int(window.arrival_ns[row]) - int(self._env.now)
            if wait > 0:
                yield self._env.timeout(wait)
            answer = self._unanswered[int(window.ordinal[row])] = self._env.event()
            self._unsent.append((window, row))
            yield answer
            if pause + self._answer_delay_ns > 0:
                yield self._env.timeout(pause + self._answer_delay_ns)

    def _send(self) -> None:
        """Submit what clients have sent at this instant, in the order they did."""
        if self._unsent:
            self._submit(_joined(self._unsent, int(self._env.now), self.ids))
            self._unsent = []

    def _submit(self, window: Arrivals) -> None:
        if self.first_arrival_ns is None and window.arrival_ns.size:
            self.first_arrival_ns = int(window.arrival_ns[0])
        self.machine.submit(window)

    def _accepted(self, batch: RequestBatch) -> tuple[Arrivals, NDArray[np.int64]]:
        """The requests of a batch as the core takes them, without those that vLLM refuses, and where they stood in it.

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
        kept = np.flatnonzero(fits)
        if not fits.all():
            self.rejected += [batch.ids[i] for i in np.flatnonzero(~fits)]
            batch = batch.take(kept)
        start = len(self.ids)
        self.ids += batch.ids
        self.sessions += batch.sessions
        window = Arrivals(
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
        return window, kept

    def _serve(self) -> Generator[simpy.Event, Any, None]:
        """Run the machine from outside event to outside event until neither has anything left."""
        closed = self._clients is not None
        while True:
            self._send()
            upcoming = self._env.peek()
            horizon = NEVER if upcoming == float("inf") else int(upcoming)
            reason = self.machine.advance(horizon, one_step=self._on_step is not None, stop_on_finish=closed)
            if reason == STEPPED and self._on_step is not None:
                self._on_step(self.machine)
            elif reason == FINISHED_SOME:
                yield _AfterAll(self._env, self.machine.now_ns)
                self._announce()
                yield _AfterAll(self._env, self.machine.now_ns)
            elif reason == RECORDS_FULL:
                self._drain()
                self._check_progress()
            elif horizon < NEVER:  # idle or stalled until then, or busy
                self._drain()
                yield _AfterAll(self._env, horizon)
            elif reason == STALLED:
                self._drain()
                raise StallError(self._stall_message("nothing in flight and no arrival left"))
            else:
                self._drain()
                return

    def _announce(self) -> None:
        """Tell the clients whose requests have finished since the last time."""
        output = self.machine.state.output
        rows = int(output.counters[FINISH_ROWS])
        for ordinal in output.finished[self._announced : rows, F_ORDINAL].tolist():
            self._unanswered.pop(ordinal).succeed()
        self._announced = rows

    def _drain(self) -> None:
        self.records.drain(self.machine.state.output)
        self._announced = 0
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


class _AfterAll(simpy.Event):
    """A moment in time at which everything else that is due by then has happened."""

    def __init__(self, env: simpy.Environment, time_ns: int) -> None:
        super().__init__(env)
        self._ok, self._value = True, None
        env.schedule(self, LATE, time_ns - int(env.now))


def _joined(rows: Sequence[tuple[Arrivals, int]], now_ns: int, ids: Sequence[str]) -> Arrivals:
    """Single requests of windows as a window of their own, arriving now."""
    spans = [slice(window.span_offsets[row], window.span_offsets[row + 1]) for window, row in rows]
    columns = {
        name: np.array([getattr(window, name)[row] for window, row in rows], getattr(rows[0][0], name).dtype)
        for name in Arrivals._fields
        if not name.startswith("span_")
    }
    columns["arrival_ns"] = np.full(len(rows), now_ns, np.int64)
    columns["tie_rank"] = tie_ranks([ids[ordinal] for ordinal in columns["ordinal"].tolist()], columns["arrival_ns"])
    return Arrivals(
        **columns,
        span_offsets=offsets(np.array([part.stop - part.start for part in spans], np.int64)),
        span_content=np.concatenate([w.span_content[part] for (w, _), part in zip(rows, spans, strict=True)]),
        span_tokens=np.concatenate([w.span_tokens[part] for (w, _), part in zip(rows, spans, strict=True)]),
    )
