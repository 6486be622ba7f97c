"""One replica serving a stream of requests: its server and what arrives, under one SimPy clock."""

from __future__ import annotations

from collections.abc import Iterator

import simpy

from sim.engine.server import Observer, Server
from sim.engine.traffic import Traffic
from sim.machine import Machine
from workloads import Clients
from workloads.batch import RequestBatch

WINDOW = 4096
"""Requests handed to the machine at a time."""


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
        self._env = simpy.Environment()
        self.traffic = Traffic(self._env, batches, machine.plan, clients=clients, answer_delay_ns=answer_delay_ns)
        self.server = Server(self._env, machine, self.traffic, on_step=on_step, on_drain=on_drain)
        self.machine = machine
        self.records = self.server.records
        self.explanation = self.server.explanation
        self.ids = self.traffic.ids
        self.sessions = self.traffic.sessions
        self.rejected = self.traffic.rejected

    @property
    def num_sent(self) -> int:
        """Requests handed to the machine, or about to be."""
        return len(self.ids)

    @property
    def first_arrival_ns(self) -> int | None:
        """When the first request was sent; None before that."""
        return self.traffic.first_arrival_ns

    def run(self) -> None:
        """Serve the whole stream.

        Raises StallError when requests are left that can never be scheduled, FailureError where vLLM itself fails.
        """
        self.traffic.start(self.server.machine.submit)
        self._env.process(self.server.serve())
        self._env.run()
