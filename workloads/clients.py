"""Closed-loop clients: a fixed number of them, each with one request on its way, thinking between answer and request.

That is what ``vllm bench serve --max-concurrency`` does (vllm 0.33.0 benchmarks/serve.py:1001): a request of the
workload is sent at its arrival time or when a client is free, whichever is later. Requests that are all there at the
start keep every client busy::

    client 1   |- request 0 -| think |- request 2 -| think |- request 3 -|
    client 2   |---- request 1 ----| think |- request 4 -|
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from workloads.batch import RequestBatch
from workloads.content import I64
from workloads.errors import WorkloadError
from workloads.generate.draws import Distribution, distribution, stream
from workloads.settings import Settings

KEYS = ("max_concurrency", "think_s")
MAX_CLIENTS = 100_000


@dataclass(frozen=True, slots=True)
class Clients:
    """``number`` clients that share one stream of requests."""

    number: int
    think_s: Distribution
    seed: int

    def pauses(self, batches: Iterator[RequestBatch]) -> Iterator[tuple[RequestBatch, I64]]:
        """Each batch with the pause in ns after the answer to each of its requests."""
        rng = stream(self.seed, "client think")
        for batch in batches:
            yield batch, np.rint(self.think_s.draw(rng, len(batch)) * 1e9).astype(np.int64)


def open_clients(config: Mapping[str, Any], base_dir: Path, seed: int) -> Clients | None:
    """The clients that ``max_concurrency`` and ``think_s`` of a ``workload`` section ask for; None: an open loop.

    Raises `WorkloadError` for a value that is not allowed, and for ``think_s`` without ``max_concurrency``.
    """
    settings = Settings({key: config[key] for key in KEYS if key in config}, "workload", KEYS)
    if "max_concurrency" not in settings:
        if "think_s" in settings:
            raise WorkloadError("needs max_concurrency beside it: the number of clients", where="workload.think_s")
        return None
    number = settings.integer("max_concurrency", 1, MAX_CLIENTS)
    return Clients(number, distribution(settings, "think_s", "seconds", base_dir, seed, default=0), seed)
