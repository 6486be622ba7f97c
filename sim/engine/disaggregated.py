"""Prefill on some replicas, decode on others, under one SimPy clock: disaggregated prefill behind a proxy.

    client      | sent                                                         first token |
    proxy       |-> a prefill replica                 |-> a decode replica
    prefill     | waits | computes the prompt, 1 token | holds its blocks ----| frees them
    decode                                            | waits | fetches      | last prompt token, outputs ...

The proxy does as vLLM's: the prompt goes to a prefill replica with ``max_tokens`` 1; when that has finished, the
request goes to a decode replica with the name of the first, which fetches the prompt's blocks from there. The client's
first token is the decode replica's. All replicas go from one end of a batch to the next together.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from sim.core.inbox import Arrivals
from sim.core.output import L_END, L_ORDINAL, LOAD_FIELDS, LOAD_ROWS
from sim.core.state import LOAD_END, LOADING_LIST, NUM_LOADING
from sim.engine.fleet import Fleet
from sim.engine.routing import make_router
from sim.engine.server import Observer
from sim.machine import Machine
from workloads import Clients
from workloads.batch import RequestBatch


class DisaggregatedFleet(Fleet):
    """Prefill and decode replicas that share a stream of requests; see :class:`sim.engine.Fleet` for the arguments.

    The machines have the roles of a producer and a consumer. ``routing`` chooses the prefill replica,
    ``decode_routing`` the decode replica, by the state it has when the prompt is computed. The servers are those of
    the prefill replicas, then those that decode.
    """

    def __init__(
        self,
        prefill: Sequence[Machine],
        decode: Sequence[Machine],
        batches: Iterator[RequestBatch],
        routing: str,
        decode_routing: str,
        *,
        load_bound: float,
        on_drain: Observer | None = None,
        clients: Clients | None = None,
        answer_delay_ns: int = 0,
    ) -> None:
        super().__init__(
            [*prefill, *decode],
            batches,
            routing,
            load_bound=load_bound,
            on_drain=on_drain,
            clients=clients,
            answer_delay_ns=answer_delay_ns,
            routed=len(prefill),
        )
        self.num_prefill = len(prefill)
        self._to_decode = make_router(decode_routing, decode, load_bound)
        self._windows: dict[int, Arrivals] = {}
        self._computed_on: dict[int, int] = {}
        self._computed: list[int] = []
        self._fetches: list[tuple[int, int]] = []
        self._loads: list[NDArray[np.int64]] = []
        for server in self.servers[: self.num_prefill]:
            server.answered = self._computed.extend

    def loads(self) -> NDArray[np.int64]:
        """[n, 4] the prompts that were fetched, in order of their requests; see `sim.core.output.Output`."""
        rows = np.concatenate([np.zeros((0, LOAD_FIELDS), np.int64), *self._loads])
        return rows[np.argsort(rows[:, L_ORDINAL], kind="stable")]

    def computed_on(self) -> dict[int, int]:
        """The prefill replica of each request."""
        return self._computed_on

    def _submit(self, replica: int, request: Arrivals) -> None:
        """Let a prefill replica compute the prompt, and the one token that comes with it."""
        ordinal = int(request.ordinal[0])
        self._windows[ordinal] = request
        self._computed_on[ordinal] = replica
        one = np.ones(1, np.int64)
        super()._submit(replica, request._replace(max_tokens=one, output_tokens=one))

    def _goes_together(self) -> bool:
        return True

    def _dues(self) -> Iterator[int]:
        """Besides ends of batches: when a prompt has been fetched, which frees its blocks and lets its request in."""
        self._note_loads()
        yield from super()._dues()
        if self._fetches:
            yield self._fetches[0][0]
        now = int(self._env.now)
        for server in self.servers[self.num_prefill :]:
            state = server.machine.state
            waiting = state.queues.lists[LOADING_LIST, : state.queues.counters[NUM_LOADING]]
            yield from (end for end in state.requests[waiting[:1], LOAD_END].tolist() if end > now)

    def _note_loads(self) -> None:
        for server in self.servers[self.num_prefill :]:
            output = server.machine.state.output
            rows = output.loads[: output.counters[LOAD_ROWS]].copy()
            output.counters[LOAD_ROWS] = 0
            if len(rows):
                self._loads.append(rows)
                for ordinal, end in rows[:, [L_ORDINAL, L_END]].tolist():
                    heapq.heappush(self._fetches, (end, ordinal))

    def _settle(self, due_ns: int) -> None:
        """Free what was fetched by now, then pass on the requests whose prompts are computed."""
        while self._fetches and self._fetches[0][0] <= due_ns:
            _, ordinal = heapq.heappop(self._fetches)
            self.servers[self._computed_on[ordinal]].machine.release_sent(ordinal, due_ns)
        computed = [int(ordinal) for ordinal in self._computed]
        self._computed.clear()
        for ordinal in computed:
            request = self._windows.pop(ordinal)._replace(arrival_ns=np.full(1, due_ns))
            if request.skip_cache[0]:  # nothing will be fetched
                self.servers[self._computed_on[ordinal]].machine.release_sent(ordinal, due_ns)
            replica = self.num_prefill + self._to_decode(request)
            super()._submit(replica, request)
