"""Synthetic workloads: seeded, streamed, the same whatever the batch size asked for."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from workloads.arrivals import Arrivals
from workloads.batch import RequestBatch, from_table
from workloads.content import PRIVATE_OUTPUT, PRIVATE_PROMPT, named
from workloads.generate.draws import Distribution, distribution, stream
from workloads.generate.prefixes import PrefixDraws, Prefixes
from workloads.generate.sessions import SessionDraws, Sessions
from workloads.settings import Settings
from workloads.workload import Tally, rebatch, reorder

KEYS = ("requests", "arrival", "prompt_tokens", "output_tokens", "shared_prefix", "sessions")
MAX_REQUESTS = 10**9
ROWS_AT_ONCE = 1 << 13


class SyntheticWorkload:
    """A generated workload; opened by `workloads.open_workload`.

    Without ``sessions`` a prompt is ``prompt_tokens`` private tokens after the shared prefix, if any. With them,
    ``arrival`` starts sessions, ``prompt_tokens`` is what a first turn adds to the shared prefix, and ``requests``
    counts turns: sessions are drawn until they hold that many.
    """

    def __init__(
        self,
        parameters: dict[str, Any],
        requests: int,
        arrivals: Arrivals,
        prompt: Distribution,
        output: Distribution,
        prefixes: Prefixes | None,
        sessions: Sessions | None,
        seed: int,
    ) -> None:
        self._parameters = parameters
        self._requests = requests
        self._arrivals = arrivals
        self._prompt = prompt
        self._output = output
        self._prefixes = prefixes
        self._sessions = sessions
        self._seed = seed
        self._tally = Tally()

    @classmethod
    def from_settings(cls, given: Any, base_dir: Path, seed: int) -> SyntheticWorkload:
        """Read the ``synthetic`` mapping; raises `WorkloadError` for a key or a value that is not allowed."""
        settings = Settings(given, "workload.synthetic", KEYS)
        return cls(
            settings.values,
            settings.integer("requests", 1, MAX_REQUESTS),
            Arrivals.from_settings(settings),
            distribution(settings, "prompt_tokens", "tokens", base_dir, seed),
            distribution(settings, "output_tokens", "tokens", base_dir, seed),
            Prefixes.from_settings(settings),
            Sessions.from_settings(settings, base_dir, seed),
            seed,
        )

    @property
    def name(self) -> str:
        """Always ``synthetic``."""
        return "synthetic"

    @property
    def expected_requests(self) -> int | None:
        """The number of requests, exactly."""
        return self._requests

    def batches(self, rows: int) -> Iterator[RequestBatch]:
        """A fresh pass; see `workloads.workload.Workload`."""
        tally = self._tally = Tally()
        yield from rebatch(self._chunks(), rows, tally)

    def describe(self) -> dict[str, Any]:
        """Counts and parameters; complete after a whole pass."""
        return {
            "source": "synthetic",
            "format": "synthetic",
            "parameters": self._parameters,
            "seed": self._seed,
            **self._tally.summary(),
        }

    def _chunks(self) -> Iterator[RequestBatch]:
        if self._sessions is None:
            return self._single()
        draws = SessionDraws(self._sessions, self._arrivals, self._prompt, self._output, self._prefixes, self._seed)
        return reorder(draws.chunks(self._requests))

    def _single(self) -> Iterator[RequestBatch]:
        """Independent requests of one turn."""
        arrival, prompt, output = (stream(self._seed, name) for name in ("arrival", "prompt", "output"))
        prefixes = PrefixDraws(self._prefixes, self._seed)
        before_ns = 0
        for ordinal in range(0, self._requests, ROWS_AT_ONCE):
            n = min(ROWS_AT_ONCE, self._requests - ordinal)
            rows = np.arange(ordinal, ordinal + n, dtype=np.int64)
            times = self._arrivals.times(arrival, ordinal, n, before_ns)
            before_ns = int(times[-1])
            shared, shared_tokens = prefixes.next(times)
            content = np.stack([shared, named(rows, PRIVATE_PROMPT), named(rows, PRIVATE_OUTPUT)], axis=1)
            tokens = np.stack([shared_tokens, self._prompt.tokens(prompt, n), self._output.tokens(output, n)], axis=1)
            yield from_table([str(i) for i in rows.tolist()], times, content, tokens)
