"""Requests of a whole trace put on one time axis: re-based, started by an arrival process, open or closed loops."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from workloads.arrivals import Arrivals
from workloads.batch import OPEN_LOOP, RequestBatch, concat
from workloads.content import I64, hash_text
from workloads.errors import WorkloadError
from workloads.workload import Tally

ARRIVAL_STREAM = hash_text("stream/trace arrival")


@dataclass(frozen=True, slots=True)
class Placement:
    """Where a trace's requests go in time.

    ``arrivals``: the process that starts sessions, or requests without one; None keeps the trace's own times.
    ``closed_loop``: whether a turn waits for the answer to the one before; None leaves it to the trace, whose own times
    are kept where it has any.
    """

    arrivals: Arrivals | None
    closed_loop: bool | None
    seed: int

    @property
    def needed(self) -> bool:
        """Whether anything was asked for that needs the whole trace at once."""
        return self.arrivals is not None or self.closed_loop is not None

    def apply(self, chunks: Iterator[RequestBatch], tally: Tally, limit: int | None, label: str) -> RequestBatch | None:
        """All requests in their places, the first ``limit`` of them; None when there are none."""
        parts = [chunk for chunk in chunks if len(chunk)]
        if not parts:
            return None
        batch = concat(parts)
        batch = replace(batch, arrival_ns=batch.arrival_ns - batch.arrival_ns.min())
        if tally.unplaced and self.arrivals is None:
            raise unplaced(tally.unplaced, label)
        unit = units(batch)
        starts = first_arrivals(unit, batch.arrival_ns)
        if self.arrivals is not None:
            moved = self._started(starts)
            batch = replace(batch, arrival_ns=batch.arrival_ns + (moved - starts)[unit])
            starts = moved
        batch = self._looped(batch, unit, starts, tally, label)
        order = (
            np.lexsort((batch.turn, unit, batch.arrival_ns))
            if closed(batch)
            else batch.arrival_ns.argsort(kind="stable")
        )
        return batch.take(order[:limit])

    def _started(self, starts: I64) -> I64:
        assert self.arrivals is not None
        rng = np.random.default_rng(np.random.SeedSequence(self.seed, spawn_key=(ARRIVAL_STREAM,)))
        moved = np.empty_like(starts)
        moved[starts.argsort(kind="stable")] = self.arrivals.times(rng, 0, len(starts), 0)
        return moved

    def _looped(self, batch: RequestBatch, unit: I64, starts: I64, tally: Tally, label: str) -> RequestBatch:
        """The batch with its loops closed, or opened."""
        waits = batch.think_ns > OPEN_LOOP
        wanted = tally.closed_only if self.closed_loop is None else self.closed_loop
        if wanted and not waits.any():
            raise WorkloadError(
                "closed_loop is true, but the trace does not say which request waits for which answer",
                where="workload.closed_loop",
            )
        if not wanted and tally.closed_only:
            raise WorkloadError(
                f"closed_loop is false, but later turns of {label} have no time of their own: they wait for answers",
                where="workload.closed_loop",
            )
        tally.notes["closed_loop"] = bool(wanted)
        if not wanted:
            return replace(batch, think_ns=np.full_like(batch.think_ns, OPEN_LOOP))
        return replace(batch, arrival_ns=np.where(waits, starts[unit], batch.arrival_ns))


def unplaced(why: str, label: str) -> WorkloadError:
    """The error for a trace that does not say when its requests come."""
    return WorkloadError(f"{why}; give workload.arrival, as in {{kind: poisson, rate_per_s: 2}}", where=label)


def closed(batch: RequestBatch) -> bool:
    """Whether any request waits for an answer."""
    return bool((batch.think_ns > OPEN_LOOP).any())


def units(batch: RequestBatch) -> I64:
    """The number of each request's session, or a number of its own; counted in order of appearance."""
    seen: dict[str | int, int] = {}
    return np.array(
        [seen.setdefault(i if session is None else session, len(seen)) for i, session in enumerate(batch.sessions)],
        dtype=np.int64,
    )


def first_arrivals(unit: I64, arrival_ns: I64) -> I64:
    """The earliest arrival in each unit.

    >>> first_arrivals(np.array([0, 1, 0]), np.array([5, 2, 3])).tolist()
    [3, 2]
    """
    first = np.full(int(unit.max()) + 1, np.iinfo(np.int64).max, dtype=np.int64)
    np.minimum.at(first, unit, arrival_ns)
    return first
