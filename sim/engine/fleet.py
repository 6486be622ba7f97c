"""Several replicas behind a router, each with its own exact core, under one SimPy clock.

A request is routed when it arrives, by the state all replicas have at that instant: all run up to it first. Where
somebody waits for answers, a finish on one replica may send a request to another, so the replicas go from one end of a
batch to the next together::

    replica 0   |--- batch ---|--- batch ---|              at each | : process what ended, tell the clients,
    replica 1   |----- batch -----|--- batch ---|          route what they send, then schedule
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import simpy

from sim.core.advance import STALLED
from sim.core.inbox import Arrivals
from sim.core.state import BATCH_END, BATCH_HEAD, NEVER, NUM_BATCHES
from sim.engine.routing import make_router
from sim.engine.server import AfterAll, Observer, Server
from sim.engine.traffic import Traffic, joined
from sim.explanation import Explanation
from sim.machine import Machine
from sim.records import Records
from workloads import Clients
from workloads.batch import RequestBatch


@dataclass(frozen=True, slots=True)
class Part:
    """What one replica of a fleet leaves behind, as an Engine has it; what was refused counts for the first."""

    machine: Machine
    records: Records
    explanation: Explanation
    ids: list[str]
    sessions: list[str | None]
    rejected: list[str]
    first_arrival_ns: int | None
    num_sent: int


class Fleet:
    """Replicas that share a stream of requests through a router; see `sim.engine.Engine` for the arguments.

    ``load_bound``: where prefixes decide, a replica's load may be so many times the mean, plus one request. ``sent``
    counts the requests each replica was given; ``routed``: as many of the first are chosen among, not all.
    """

    def __init__(
        self,
        machines: Sequence[Machine],
        batches: Iterator[RequestBatch],
        routing: str,
        *,
        load_bound: float,
        on_drain: Observer | None = None,
        clients: Clients | None = None,
        answer_delay_ns: int = 0,
        routed: int | None = None,
    ) -> None:
        self._env = simpy.Environment()
        self.traffic = Traffic(
            self._env, batches, machines[0].plan, clients=clients, answer_delay_ns=answer_delay_ns, one_by_one=True
        )
        self.servers = [Server(self._env, machine, self.traffic, on_drain=on_drain) for machine in machines]
        self.sent = [0] * len(machines)
        self._first: list[int | None] = [None] * len(machines)
        self._router = make_router(routing, machines[:routed], load_bound)

    def run(self) -> None:
        """Serve the whole stream. Raises StallError when requests are left that can never be scheduled."""
        self.traffic.start(self._route)
        self._env.process(self._serve())
        self._env.run()

    def parts(self) -> list[Part]:
        """The replicas one by one, after the run."""
        traffic = self.traffic
        return [
            Part(
                server.machine,
                server.records,
                server.explanation,
                traffic.ids,
                traffic.sessions,
                [] if replica else traffic.rejected,
                self._first[replica],
                self.sent[replica],
            )
            for replica, server in enumerate(self.servers)
        ]

    def _route(self, arrivals: Arrivals) -> None:
        """Give each request to its replica; the next one is routed knowing where the ones before went."""
        for row in range(arrivals.ordinal.size):
            request = joined([(arrivals, row)])
            self._submit(self._router(request), request)

    def _submit(self, replica: int, request: Arrivals) -> None:
        if not self.sent[replica]:
            self._first[replica] = int(request.arrival_ns[0])
        self.sent[replica] += 1
        self.servers[replica].machine.submit(request)

    def _goes_together(self) -> bool:
        """Whether what ends on one replica may send a request to another."""
        return self.traffic.awaits_answers

    def _dues(self) -> Iterator[int]:
        """When something inside is due next, in ns: for each replica the end of its oldest batch."""
        now = int(self._env.now)
        return (_next_due(server.machine, now) for server in self.servers)

    def _settle(self, due_ns: int) -> None:
        """After the outputs that were due have been processed everywhere."""

    def _serve(self) -> Generator[simpy.Event, Any, None]:
        while True:
            self.traffic.send()
            upcoming = self._env.peek()
            outside = NEVER if upcoming == float("inf") else int(upcoming)
            due = outside
            if self._goes_together():
                now = int(self._env.now)
                for server in self.servers:
                    server.run_to(now + 1)  # schedules what is due now
                due = min(outside, *self._dues())
            reasons = [server.run_to(due) for server in self.servers] if due == outside else []
            if due == NEVER:
                self._end(reasons)
                return
            yield AfterAll(self._env, due)
            for server in self.servers:
                server.run_to(due)
                server.announce()
            self._settle(due)
            yield AfterAll(self._env, due)

    def _end(self, reasons: Sequence[int]) -> None:
        for server, reason in zip(self.servers, reasons, strict=True):
            server.drain()
            if reason == STALLED:
                server.stalled()
            server.check_clock(reason)


def _next_due(machine: Machine, now_ns: int) -> int:
    """When a replica processes its oldest batch, in ns; NEVER when none is in flight, or an empty one of who waits."""
    queues = machine.state.queues
    if queues.counters[NUM_BATCHES] == 0:
        return NEVER
    end = int(queues.batch[queues.counters[BATCH_HEAD], BATCH_END])
    return end if end > now_ns else NEVER
