"""What arrives, and when: windows of a trace, clients that wait for answers, sessions whose turns do.

Requests that wait for nobody are handed over a window at a time, when the first of them arrives. A client, or a session
in which a turn follows the answer to the one before, is a SimPy process: it sends single requests and is told when they
are answered.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import simpy
from numpy.typing import NDArray

from sim.core.inbox import Arrivals
from sim.core.state import Plan
from sim.errors import InputError
from workloads import Clients
from workloads.batch import OPEN_LOOP, RequestBatch, offsets, tie_ranks
from workloads.conversations import Conversation, conversations


@dataclass
class Window:
    """A batch of the workload as the core takes it, and what its requests wait for: lists, made where somebody does."""

    arrivals: Arrivals
    batch: RequestBatch
    pauses: list[int]

    @cached_property
    def think_ns(self) -> list[int]:
        """Of each request; below 0 where it waits for no other."""
        waits: list[int] = self.batch.think_ns.tolist()
        return waits

    @cached_property
    def conversations(self) -> list[Conversation]:
        """Its requests by conversation."""
        return conversations(self.batch)


class Traffic:
    """A workload on its way to whoever serves it.

    ``ids`` and ``sessions`` of all requests in the workload's order, a request's place there being its ordinal;
    ``rejected``: ids of those vLLM refuses. ``one_by_one``: each request is handed over when it arrives, in no window.
    """

    def __init__(
        self,
        env: simpy.Environment,
        batches: Iterator[RequestBatch],
        plan: Plan,
        *,
        clients: Clients | None = None,
        answer_delay_ns: int = 0,
        one_by_one: bool = False,
    ) -> None:
        self.ids: list[str] = []
        self.sessions: list[str | None] = []
        self.rejected: list[str] = []
        self.first_arrival_ns: int | None = None
        self._env = env
        self._batches = batches
        self._plan = plan
        self._clients = clients
        self._answer_delay_ns = answer_delay_ns
        self._one_by_one = one_by_one
        self._unsent: list[tuple[Arrivals, int]] = []
        self._unanswered: dict[int, simpy.Event] = {}
        self._submit: Callable[[Arrivals], None]

    @property
    def awaits_answers(self) -> bool:
        """Whether anybody waits for an answer."""
        return bool(self._unanswered)

    def start(self, submit: Callable[[Arrivals], None]) -> None:
        """Begin to arrive at ``submit``."""
        self._submit = submit
        if self._clients is None:
            self._env.process(self._each() if self._one_by_one else self._open_loop())
        else:
            turns = self._talks(self._clients)
            for _ in range(self._clients.number):
                self._env.process(self._client(turns))

    def answered(self, ordinals: NDArray[np.int64]) -> None:
        """Tell those who wait that these requests have finished now."""
        if not self._unanswered:
            return
        for ordinal in ordinals.tolist():
            if waiting := self._unanswered.pop(ordinal, None):
                waiting.succeed()

    def send(self) -> None:
        """Hand over what clients and sessions have sent at this instant, in the order they did."""
        if self._unsent:
            self._hand_over(_at_once(joined(self._unsent), int(self._env.now), self.ids))
            self._unsent = []

    def _hand_over(self, arrivals: Arrivals) -> None:
        if arrivals.ordinal.size:
            if self.first_arrival_ns is None:
                self.first_arrival_ns = int(arrivals.arrival_ns[0])
            self._submit(arrivals)

    def _open_loop(self) -> Generator[simpy.Event, Any, None]:
        """Hand over each window when its first request arrives, so that the next one is always a known event."""
        for batch in self._batches:
            yield from self._until(int(batch.arrival_ns[0]))
            window = self._window(batch)
            if not (window.batch.think_ns > OPEN_LOOP).any():
                self._hand_over(window.arrivals)
                continue
            first = sorted(row for talk in window.conversations for row in talk[0])
            for talk in window.conversations:
                if len(talk) > 1:
                    self._env.process(self._later_turns(window, talk, self._expect(window, talk[0])))
            self._hand_over(joined([(window.arrivals, row) for row in first]))

    def _each(self) -> Generator[simpy.Event, Any, None]:
        """Send each request when it arrives."""
        for batch in self._batches:
            window = self._window(batch)
            for talk in window.conversations:
                yield from self._until(int(window.arrivals.arrival_ns[talk[0][0]]))
                self._unsent += [(window.arrivals, row) for row in talk[0]]
                if len(talk) > 1:
                    self._env.process(self._later_turns(window, talk, self._expect(window, talk[0])))

    def _talks(self, clients: Clients) -> Iterator[tuple[Window, Conversation]]:
        """The conversations in order, each in its window; a request that waits for no other is one of a single turn."""
        for batch, pauses in clients.pauses(self._batches):
            window = self._window(batch, pauses.tolist())
            for talk in window.conversations:
                yield window, talk

    def _client(self, talks: Iterator[tuple[Window, Conversation]]) -> Generator[simpy.Event, Any, None]:
        """One client: it takes the next conversation, leads it to its end, thinks, and so on until none is left."""
        for window, talk in talks:
            yield from self._until(int(window.arrivals.arrival_ns[talk[0][0]]))
            answers = self._expect(window, talk[0])
            self._unsent += [(window.arrivals, row) for row in talk[0]]
            yield from self._later_turns(window, talk, answers)
            yield from self._until(int(self._env.now) + self._answer_delay_ns + window.pauses[talk[0][0]])

    def _later_turns(
        self, window: Window, talk: Conversation, answers: list[simpy.Event]
    ) -> Generator[simpy.Event, Any, None]:
        """Send each turn when the one before has been answered and thought about; returns with the last answer."""
        yield self._env.all_of(answers)
        for turn in talk[1:]:
            answered = int(self._env.now) + self._answer_delay_ns
            answers = self._expect(window, turn)
            for row in sorted(turn, key=window.think_ns.__getitem__):
                yield from self._until(answered + window.think_ns[row])
                self._unsent.append((window.arrivals, row))
            yield self._env.all_of(answers)

    def _expect(self, window: Window, rows: Sequence[int]) -> list[simpy.Event]:
        """The answers to requests about to be sent, as events."""
        events = {int(window.arrivals.ordinal[row]): self._env.event() for row in rows}
        self._unanswered |= events
        return list(events.values())

    def _until(self, time_ns: int) -> Generator[simpy.Event, Any, None]:
        if time_ns > self._env.now:
            yield self._env.timeout(time_ns - int(self._env.now))

    def _window(self, batch: RequestBatch, pauses: Sequence[int] = ()) -> Window:
        """The requests of a batch as the core takes them, without those that vLLM refuses.

        It refuses a prompt of max_model_len tokens or more, and an input to the encoder that no batch holds.

        vllm 0.33.0 v1/engine/input_processor.py:557 and :635.
        """
        plan = self._plan
        if plan.encoder_budget == 0 and batch.encoder_tokens.any():
            first = batch.ids[int(np.flatnonzero(batch.encoder_tokens)[0])]
            raise InputError(f"request {first!r} has encoder_tokens, but the model has no encoder", where="workload")
        fits = (batch.prompt_tokens < plan.max_model_len) & (batch.encoder_tokens <= plan.encoder_budget)
        if not fits.all():
            self.rejected += [batch.ids[i] for i in np.flatnonzero(~fits)]
            batch = batch.take(np.flatnonzero(fits))
            pauses = [pause for pause, fit in zip(pauses, fits.tolist(), strict=False) if fit]
        start = len(self.ids)
        self.ids += batch.ids
        self.sessions += batch.sessions
        arrivals = _arrivals(batch, start, plan.encoder_tokens)
        return Window(arrivals, batch, list(pauses))


def _arrivals(batch: RequestBatch, first_ordinal: int, encoder_tokens: int) -> Arrivals:
    return Arrivals(
        ordinal=np.arange(first_ordinal, first_ordinal + len(batch), dtype=np.int64),
        arrival_ns=batch.arrival_ns,
        prompt_tokens=batch.prompt_tokens,
        output_tokens=batch.output_tokens,
        max_tokens=batch.max_tokens,
        priority=batch.priority,
        tie_rank=batch.tie_rank,
        skip_cache=batch.skip_cache,
        encoder_tokens=np.where(batch.encoder_tokens > 0, batch.encoder_tokens, encoder_tokens),
        salt=batch.salt,
        span_offsets=batch.span_offsets,
        span_content=batch.span_content,
        span_tokens=batch.span_tokens,
    )


def joined(rows: Sequence[tuple[Arrivals, int]]) -> Arrivals:
    """Single requests of windows as a window of their own."""
    spans = [slice(window.span_offsets[row], window.span_offsets[row + 1]) for window, row in rows]
    columns = {
        name: np.array([getattr(window, name)[row] for window, row in rows], getattr(rows[0][0], name).dtype)
        for name in Arrivals._fields
        if not name.startswith("span_")
    }
    return Arrivals(
        **columns,
        span_offsets=offsets(np.array([part.stop - part.start for part in spans], np.int64)),
        span_content=np.concatenate([w.span_content[part] for (w, _), part in zip(rows, spans, strict=True)]),
        span_tokens=np.concatenate([w.span_tokens[part] for (w, _), part in zip(rows, spans, strict=True)]),
    )


def _at_once(window: Arrivals, now_ns: int, ids: Sequence[str]) -> Arrivals:
    """The same requests, arriving together."""
    arrival_ns = np.full(window.ordinal.size, now_ns, np.int64)
    names = [ids[ordinal] for ordinal in window.ordinal.tolist()]
    return window._replace(arrival_ns=arrival_ns, tie_rank=tie_ranks(names, arrival_ns))
