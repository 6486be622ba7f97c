"""A part of a trace: a stretch of time, or a share of its sessions, each whole."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from workloads.batch import RequestBatch
from workloads.content import hash_text


@dataclass(frozen=True, slots=True)
class Sample:
    """Requests that arrive from ``from_ns`` on and before ``until_ns`` (None: no bound), of ``share`` of the sessions.

    A session, or a request without one, is in or out by a hash of its name and the seed: whole, and the same whatever
    else is in the trace.
    """

    from_ns: int = 0
    until_ns: int | None = None
    share: float = 1.0
    seed: int = 0

    def of(self, batches: Iterable[RequestBatch]) -> Iterator[RequestBatch]:
        """The requests of the sample, their times unchanged."""
        for batch in batches:
            kept = batch.arrival_ns >= self.from_ns
            if self.until_ns is not None:
                kept &= batch.arrival_ns < self.until_ns
            if self.share < 1.0:
                names = [session or name for session, name in zip(batch.sessions, batch.ids, strict=True)]
                kept &= np.array([self._drawn(name) for name in names])
            if kept.any():
                yield batch.take(np.flatnonzero(kept))

    def _drawn(self, name: str) -> bool:
        return hash_text(f"sample/{self.seed}/{name}") < self.share * (1 << 64)
