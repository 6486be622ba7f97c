"""What the simulator asks of a workload, and the running count of what a pass over it met."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from workloads.batch import OPEN_LOOP, RequestBatch, concat
from workloads.content import I64
from workloads.errors import WorkloadError


class Workload(Protocol):
    """A stream of requests that can be read any number of times, always with the same result."""

    @property
    def name(self) -> str:
        """A short name for tables: the trace's name, or ``synthetic``."""

    @property
    def expected_requests(self) -> int | None:
        """About how many requests a pass yields, for a progress bar; None when unknown."""

    def batches(self, rows: int) -> Iterator[RequestBatch]:
        """A fresh pass in batches of at most ``rows`` requests.

        Only a run of equal ``arrival_ns`` longer than ``rows`` makes a larger batch: a run never straddles two. The
        requests are the same for every ``rows``. Raises `WorkloadError` at the first bad row.
        """

    def describe(self) -> dict[str, Any]:
        """Counts, provenance and what was changed; complete after a whole pass of `batches`."""


@dataclass(slots=True)
class Tally:
    """What one pass has met so far. ``limit`` is the largest number of requests wanted, None for all.

    ``changed`` and ``skipped`` count rows by reason. A reader sets ``unplaced`` to what it must say of a trace without
    arrival times, ``closed_only`` when later turns have no time but that of an answer, and keeps in ``memory`` what it
    must know of the files before.
    """

    limit: int | None = None
    read: int = 0
    requests: int = 0
    prompt_tokens: int = 0
    output_tokens: int = 0
    first_ns: int | None = None
    last_ns: int = 0
    tied: int = 0
    complete: bool = False
    memory: dict[str, Any] = field(default_factory=dict)
    unplaced: str = ""
    closed_only: bool = False
    skipped: dict[str, int] = field(default_factory=dict)
    changed: dict[str, int] = field(default_factory=dict)
    notes: dict[str, Any] = field(default_factory=dict)

    @property
    def left(self) -> int | None:
        """How many more requests may be read; None for no limit."""
        return None if self.limit is None else self.limit - self.read

    def skip(self, reason: str, rows: int) -> None:
        """Count ``rows`` rows as left out for ``reason``."""
        if rows:
            self.skipped[reason] = self.skipped.get(reason, 0) + rows

    def change(self, reason: str, rows: int) -> None:
        """Count ``rows`` rows as kept in another form than the file has."""
        if rows:
            self.changed[reason] = self.changed.get(reason, 0) + rows

    def keep(self, prompt: I64, output: I64) -> I64:
        """Positions of the rows with a prompt and an output; the others are counted by reason."""
        self.skip("zero_prompt_tokens", int((prompt == 0).sum()))
        self.skip("zero_output_tokens", int(((prompt > 0) & (output == 0)).sum()))
        return np.flatnonzero((prompt > 0) & (output > 0))

    def count(self, batch: RequestBatch) -> None:
        """Count the requests of a batch on its way out."""
        self.requests += len(batch)
        self.prompt_tokens += int(batch.prompt_tokens.sum())
        self.output_tokens += int(batch.output_tokens.sum())
        if self.first_ns is None:
            self.first_ns = int(batch.arrival_ns[0])
        self.last_ns = int(batch.arrival_ns[-1])
        self.tied += int((np.diff(batch.arrival_ns) == 0).sum())

    def summary(self) -> dict[str, Any]:
        """The counts in the words of `Workload.describe`."""
        return {
            "complete": self.complete,
            "requests": self.requests,
            "prompt_tokens_total": self.prompt_tokens,
            "output_tokens_total": self.output_tokens,
            "span_s": 0.0 if self.first_ns is None else (self.last_ns - self.first_ns) / 1e9,
            "same_time_as_before": self.tied,
            **self.notes,
            "rows_changed": dict(sorted(self.changed.items())),
            "rows_skipped": dict(sorted(self.skipped.items())),
        }


def rebatch(chunks: Iterator[RequestBatch], rows: int, tally: Tally) -> Iterator[RequestBatch]:
    """Cut a sorted stream into batches of whole runs of equal arrivals, ranked and counted."""
    if rows < 1:
        raise ValueError(f"rows must be at least 1, not {rows}")
    held: list[RequestBatch] = []
    for chunk in chunks:
        # The last run of what is held may go on in the next chunk, so it stays back.
        runs = run_starts(chunk.arrival_ns)
        if held and chunk.arrival_ns[0] != held[-1].arrival_ns[-1]:
            runs = np.concatenate(([0], runs))
        held.append(chunk)
        if not len(runs):
            continue
        size = sum(map(len, held))
        ready = size - len(chunk) + int(runs[-1])
        merged = concat(held)
        yield from cut(merged.slice(0, ready), rows, tally)
        held = [merged.slice(ready, size)]
    if held:
        yield from cut(concat(held), rows, tally)
    tally.complete = True


def cut(batch: RequestBatch, rows: int, tally: Tally) -> Iterator[RequestBatch]:
    """Cut whole runs into batches: each ends at the last run boundary within ``rows``, or after one longer run."""
    edges = np.append(run_starts(batch.arrival_ns), len(batch))
    start = 0
    while start < len(batch):
        fitting = int(np.searchsorted(edges, start + rows, side="right"))
        within = fitting > 0 and edges[fitting - 1] > start
        stop = int(edges[fitting - 1] if within else edges[fitting])
        part = batch.slice(start, stop).ranked()
        refuse_orphans(part)
        tally.count(part)
        yield part
        start = stop


def refuse_orphans(batch: RequestBatch) -> None:
    """Raise for a request of a closed loop without an earlier turn of its session at the same ``arrival_ns``."""
    waiting = np.flatnonzero(batch.think_ns > OPEN_LOOP).tolist()
    if not waiting:
        return
    first: dict[tuple[str | None, int], int] = {}
    last: dict[tuple[str | None, int], int] = {}
    for session, arrival, turn in zip(batch.sessions, batch.arrival_ns.tolist(), batch.turn.tolist(), strict=True):
        first[session, arrival] = min(turn, first.get((session, arrival), turn))
        if session is not None and turn < last.get((session, arrival), 0):
            raise WorkloadError(f"session {session!r}: turn {turn} stands below a later one; sort its rows by turn")
        last[session, arrival] = turn
    for i in waiting:
        session, arrival, turn = batch.sessions[i], int(batch.arrival_ns[i]), int(batch.turn[i])
        if session is None or first[session, arrival] >= turn:
            raise WorkloadError(
                f"request {batch.ids[i]!r} waits for an answer that nobody asked for: think_s needs a row of "
                "its session with a smaller turn and the same arrival_s"
            )


def run_starts(arrival_ns: I64) -> I64:
    """Positions, other than the first, at which a new arrival time begins."""
    return np.flatnonzero(np.diff(arrival_ns)) + 1


def reorder(chunks: Iterator[tuple[RequestBatch, int]]) -> Iterator[RequestBatch]:
    """Sort a stream by arrival, ties in stream order, holding back only what later chunks may still precede.

    Each chunk comes with its floor: every request of a later chunk arrives at the floor or after it.
    """
    held: list[RequestBatch] = []
    old = new = 0
    for chunk, floor in chunks:
        held.append(chunk)
        new += len(chunk)
        # Merging only once the held part has doubled keeps the work linear when the window is long.
        if new < old:
            continue
        merged = concat(held)
        merged = merged.take(np.argsort(merged.arrival_ns, kind="stable"))
        safe = int(np.searchsorted(merged.arrival_ns, floor, side="left"))
        if safe:
            yield merged.slice(0, safe)
        held = [merged.slice(safe, len(merged))]
        old, new = len(held[0]), 0
    if held:
        merged = concat(held)
        if len(merged):
            yield merged.take(np.argsort(merged.arrival_ns, kind="stable"))
