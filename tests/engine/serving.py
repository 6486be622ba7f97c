"""Requests through the SimPy engine: columns in, columns out."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from sim.engine import Engine
from sim.invariants import check_invariants
from sim.machine import Machine
from sim.step_log import StepLog, write_entry
from tests.twin.ours import make_machine
from tests.twin.settings import Ask, Settings
from workloads import Clients
from workloads.batch import RequestBatch, from_spans, tie_ranks


def batch_of(asks: Iterable[Ask]) -> RequestBatch:
    """Requests as a workload yields them, sorted by arrival."""
    ordered = sorted(asks, key=lambda ask: ask.arrival_ns)
    ids = [ask.name for ask in ordered]
    arrival = np.array([ask.arrival_ns for ask in ordered], np.int64)
    flat = [span for ask in ordered for span in (*ask.prompt, *ask.output)]

    def column(value: Callable[[Ask], int]) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
        return np.array([value(ask) for ask in ordered], np.int64)

    return from_spans(
        ids,
        arrival,
        prompt_tokens=column(lambda ask: ask.prompt_tokens),
        output_tokens=column(lambda ask: ask.output_tokens),
        prompt_spans=column(lambda ask: len(ask.prompt)),
        span_counts=column(lambda ask: len(ask.prompt) + len(ask.output)),
        span_content=np.array([content for content, _ in flat], np.uint64),
        span_tokens=np.array([tokens for _, tokens in flat], np.int64),
        max_tokens=column(lambda ask: ask.max_tokens),
        priority=column(lambda ask: ask.priority),
        skip_cache=np.array([ask.skip_cache for ask in ordered], np.bool_),
        salt=np.array([ask.salt for ask in ordered], np.uint64),
        tie_rank=tie_ranks(ids, arrival),
    )


def cut(batch: RequestBatch, rows: int) -> list[RequestBatch]:
    """A batch in parts of about ``rows`` requests; requests that arrive together stay together."""
    parts, start = [], 0
    for stop in range(1, len(batch) + 1):
        together = stop < len(batch) and batch.arrival_ns[stop] == batch.arrival_ns[stop - 1]
        if stop == len(batch) or (stop - start >= rows and not together):
            parts.append(batch.slice(start, stop))
            start = stop
    return parts


@dataclass(frozen=True, slots=True)
class Served:
    """What a run left behind."""

    engine: Engine
    requests: dict[str, Any]
    steps: dict[str, Any]
    log: str

    @property
    def machine(self) -> Machine:
        """The machine at its end."""
        return self.engine.machine

    @property
    def counters(self) -> list[int]:
        """All totals of the machine."""
        totals: list[int] = self.machine.state.output.counters.tolist()
        return totals

    def of(self, name: str) -> dict[str, Any]:
        """One request's record."""
        at = self.requests["id"].index(name)
        return {column: values[at] for column, values in self.requests.items()}


def serve(
    asks: Sequence[Ask] | RequestBatch,
    settings: Settings | None = None,
    *,
    machine: Machine | None = None,
    rows: int = 4096,
    logged: bool = False,
    checked: bool = True,
    clients: Clients | None = None,
    answer_delay_ns: int = 0,
) -> Served:
    """Run requests to the end, ``rows`` to a window; ``logged``: a step at a time; ``checked``: invariants verified."""
    batch = asks if isinstance(asks, RequestBatch) else batch_of(asks)
    served_by = machine or make_machine(settings or Settings(), log_tables=logged)
    text = io.StringIO()
    log = StepLog(lambda ordinal: engine.ids[ordinal])

    def on_step(machine: Machine) -> None:
        for entry in log.entries(machine):
            write_entry(text, entry)

    engine = Engine(
        served_by,
        iter(cut(batch, rows)),
        on_step=on_step if logged else None,
        on_drain=check_invariants if checked else None,
        clients=clients,
        answer_delay_ns=answer_delay_ns,
    )
    engine.run()
    if logged:
        for entry in log.finished(served_by):
            write_entry(text, entry)
    records = engine.records
    requests = records.request_columns(engine.ids, engine.sessions, 0)
    return Served(engine, requests, records.step_columns(), text.getvalue())
