"""When requests, or sessions, arrive: seeded renewal processes in whole nanoseconds."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from workloads.columns import MAX_SECONDS
from workloads.content import I64
from workloads.errors import WorkloadError
from workloads.settings import Settings

KINDS = {
    "poisson": ("rate_per_s",),
    "gamma": ("rate_per_s", "cv"),
    "constant": ("rate_per_s",),
    "all_at_once": (),
}
MAX_RATE = 1e9


@dataclass(frozen=True, slots=True)
class Arrivals:
    """An arrival process: ``rate_per_s`` arrivals a second whose gaps have the coefficient of variation ``cv``."""

    kind: str
    rate_per_s: float
    cv: float

    @classmethod
    def from_settings(cls, settings: Settings) -> Arrivals:
        """Read ``{kind: poisson|gamma|constant|all_at_once, rate_per_s, cv}``."""
        kind = Settings(settings.get("arrival"), settings.path("arrival"), ("kind", "rate_per_s", "cv")).choice(
            "kind", tuple(KINDS)
        )
        own = Settings(settings.get("arrival"), settings.path("arrival"), ("kind", *KINDS[kind]))
        rate = own.number("rate_per_s", 0, MAX_RATE, above=True) if kind != "all_at_once" else 0.0
        return cls(kind, rate, own.number("cv", 0.01, 100) if kind == "gamma" else 1.0)

    def times(self, rng: np.random.Generator, ordinal: int, n: int, before_ns: int) -> I64:
        """Arrivals ``ordinal`` to ``ordinal + n`` in ns, given that the last one before them came at ``before_ns``.

        A constant process starts at 0, Poisson and gamma with a first gap. Raises `WorkloadError` beyond 10^9 s.
        """
        if self.kind == "all_at_once":
            return np.zeros(n, dtype=np.int64)
        if self.kind == "constant":
            times = np.arange(ordinal, ordinal + n, dtype=np.float64) * (1e9 / self.rate_per_s)
            self._check(ordinal + n, float(times[-1]))
            return np.rint(times).astype(np.int64)
        shape = 1.0 if self.kind == "poisson" else self.cv**-2
        gaps = np.rint(rng.gamma(shape, 1e9 / (shape * self.rate_per_s), n))
        self._check(ordinal + n, before_ns + float(gaps.sum()))
        return before_ns + np.cumsum(gaps.astype(np.int64))

    def _check(self, count: int, last_ns: float) -> None:
        if last_ns > MAX_SECONDS * 1e9:
            raise WorkloadError(
                f"the first {count} arrivals reach beyond 10^9 s; allowed: a higher rate or fewer requests",
                where="workload arrival.rate_per_s",
            )
