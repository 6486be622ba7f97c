"""A workload whose requests stay in memory after the first pass, for many runs on the same requests."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from workloads.batch import RequestBatch
from workloads.workload import Workload

MOST_REQUESTS = 1 << 20
"""A workload of more requests is read anew in each pass."""


class KeptWorkload:
    """Another workload, read once; see `workloads.workload.Workload`."""

    def __init__(self, workload: Workload) -> None:
        self._workload = workload
        self._kept: tuple[int, list[RequestBatch]] | None = None
        self._described: dict[str, Any] = {}

    @property
    def name(self) -> str:
        """The workload's name."""
        return self._workload.name

    @property
    def expected_requests(self) -> int | None:
        """About how many requests a pass yields."""
        return self._workload.expected_requests

    def batches(self, rows: int) -> Iterator[RequestBatch]:
        """A fresh pass, from memory where the last whole one had the same ``rows``."""
        if self._kept is not None and self._kept[0] == rows:
            yield from self._kept[1]
            return
        held: list[RequestBatch] | None = []
        count = 0
        for batch in self._workload.batches(rows):
            count += len(batch)
            if held is not None and count <= MOST_REQUESTS:
                held.append(batch)
            else:
                held = None
            yield batch
        self._described = self._workload.describe()
        if held is not None:
            self._kept = (rows, held)

    def describe(self) -> dict[str, Any]:
        """Counts and provenance of the whole workload, after a whole pass."""
        return self._described or self._workload.describe()
