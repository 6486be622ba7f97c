"""When the requests of a synthetic trace come: a load that rises and falls as the trace's, and bursts on top of it.

The span of the trace is cut into equal windows, whose numbers of arrivals are its profile. Within it, arrivals are a
renewal process in a time that runs as fast as the profile is high. A trace whose arrivals all lie on ticks, as those of
a collector that writes every 3 s, gives a synthetic one on ticks.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from workloads.content import I64
from workloads.generate.draws import F64, stream

WINDOWS = 64


@dataclass(frozen=True, slots=True)
class Load:
    """``profile``: share of the arrivals in each window; ``gap_cv``: of the gaps within it; ``tick_s``: 0 for none."""

    rate_per_s: float
    gap_cv: float
    tick_s: float
    profile: list[float]

    def times(self, requests: int, rate: float, seed: int) -> I64:
        """Arrivals in ns from 0 on of ``requests`` requests, ``rate`` times as dense as the trace's."""
        gaps = stream(seed, "synth arrival").gamma(self.gap_cv**-2, 1.0, requests)
        places = np.cumsum(gaps) - gaps[0]
        places /= max(float(places[-1]), 1e-300)
        span_s = (requests - 1) / (self.rate_per_s * rate)
        times = span_s * np.interp(places, cumulated(self.profile), np.linspace(0, 1, len(self.profile) + 1))
        tick = self.tick_s / rate
        times = np.floor(times / tick) * tick if tick else times
        return np.asarray(np.rint((times - times[0]) * 1e9), dtype=np.int64)


def cumulated(profile: list[float]) -> F64:
    """The share of arrivals before each edge of the windows; never flat, so that it can be inverted."""
    shares = np.maximum(np.array(profile), 1e-9)
    sums = np.concatenate(([0.0], np.cumsum(shares)))
    return np.asarray(sums / sums[-1], dtype=np.float64)


def fit_load(arrival_ns: I64) -> Load:
    """The load of a trace."""
    times = (arrival_ns - arrival_ns[0]) / 1e9
    span_s = float(times[-1])
    if span_s == 0 or len(times) < 3:
        return Load(1.0, 1.0, 0.0, [1.0])
    windows = int(min(WINDOWS, max(len(times) // 50, 1)))
    counts = np.histogram(times, windows, (0, span_s))[0]
    profile = (counts / len(times)).tolist()
    places = np.interp(times, np.linspace(0, span_s, windows + 1), cumulated(profile))
    tick_s = ticks(times)
    if tick_s:
        per_tick = np.bincount(np.rint(times / tick_s).astype(np.int64))
        cv = float(np.sqrt(per_tick.var() / per_tick.mean()))
    else:
        gaps = np.diff(places)
        cv = float(gaps.std() / gaps.mean())
    return Load((len(times) - 1) / span_s, min(max(cv, 0.01), 100.0), tick_s, profile)


def ticks(times: F64) -> float:
    """Seconds between ticks when most arrivals share theirs with others and ticks are evenly spaced; 0 otherwise.

    >>> ticks(np.repeat(np.arange(10) * 3.0, 4)), ticks(np.arange(40) * 1.0)
    (3.0, 0.0)
    """
    gaps = np.diff(np.unique(times))
    if len(gaps) < 2 or len(gaps) > 0.5 * len(times):
        return 0.0
    tick = float(np.median(gaps))
    return tick if (np.abs(gaps - tick) < 0.05 * tick).mean() > 0.9 else 0.0
