"""Whether a run kept up with its load: stable, backlogged, overloaded, or too short to tell.

Requests in the system are counted at each arrival, averaged over tenths of the measured requests. Until answers come
as fast as requests their number rises in any run; after twice the time of a long answer, or half the run, it has
levelled off where the engine keeps up, and goes on rising where it does not::

    in the     overloaded   /              growth: the slope from there on, as a share of the arrival rate; 0.2: of
    system               / ´    stable             five requests that come, one is still there at the end
                      / ´ _____________
                    / ´ /
                   /___/_______________ arrivals
                       long answers are out
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sim.measure import Measure

STABLE, BACKLOGGED, OVERLOADED, SHORT = "stable", "backlogged", "overloaded", "too short to tell"
BATCHES = 10
FEWEST = 100
"""Requests below which nothing is said."""
GROWTH = 0.05
"""Of the arrivals, the share left behind above which a run counts as overloaded, when it is clear of the noise."""
UNTOLD = 0.2
"""A run whose growth may be this much within twice its error, or is above the bound and not clear of it, tells nothing.
"""


def load_of(requests: Mapping[str, Any], measure: Measure, step_s: float) -> dict[str, Any]:
    """The verdict on a run's measured requests, with ``growth`` and the mean number of requests ``waiting``.

    ``step_s`` is the mean duration of a step: backlogged means that nine of ten requests wait for more than two.
    """
    sent = np.asarray(requests["arrival_s"])
    measured = measure.of(sent).holds(sent)
    if int(measured.sum()) < FEWEST:
        return {"verdict": SHORT, "growth": None, "waiting": None}
    order = np.argsort(sent[measured], kind="stable")
    times, queue, e2e = (np.asarray(requests[name])[measured][order] for name in ("arrival_s", "queue_s", "e2e_s"))
    span, answer_s = float(times[-1] - times[0]), float(np.median(e2e))
    waiting = float(queue.mean()) * len(times) / span if span > 0 else None
    inside = in_system(times, np.sort(np.asarray(requests["finish_s"])), np.sort(sent))
    settled = float(times[0]) + min(2 * float(np.percentile(e2e, 90)), span / 2)
    growth, noise = _slope(times, inside, settled, answer_s)
    return {
        "verdict": _verdict(growth, noise, span, answer_s, float(np.percentile(queue, 10)) > 2 * step_s),
        "growth": growth,
        "waiting": waiting,
    }


def _verdict(growth: float | None, noise: float, span: float, answer_s: float, queued: bool) -> str:
    if growth is not None and growth > GROWTH and growth > 2 * noise:
        return OVERLOADED
    if growth is None or span < 3 * answer_s or growth > GROWTH or growth + 2 * noise > UNTOLD:
        return SHORT
    return BACKLOGGED if queued else STABLE


def in_system(times: NDArray[np.float64], finish: NDArray[np.float64], sent: NDArray[np.float64]) -> NDArray[np.int64]:
    """Requests sent and not finished at each of ``times``; ``finish`` and ``sent`` are sorted.

    >>> in_system(np.array([1.0, 3.0]), np.array([2.5, 4.0]), np.array([0.0, 1.0, 3.0])).tolist()
    [2, 2]
    """
    return np.searchsorted(sent, times, side="right") - np.searchsorted(finish, times, side="right")


def _slope(
    times: NDArray[np.float64], inside: NDArray[np.int64], begin: float, answer_s: float
) -> tuple[float | None, float]:
    """The slope of the number in the system over batches of arrivals from ``begin`` on, per arrival, and its error.

    Requests stay for about ``answer_s``, so batches shorter than twice that are no independent looks: the error grows.
    """
    later = times >= begin
    if int(later.sum()) < 2 * BATCHES or times[-1] <= times[later][0]:
        return None, 0.0
    parts = np.array_split(np.stack([times[later], inside[later].astype(np.float64)]), BATCHES, axis=1)
    at, level = np.array([part.mean(axis=1) for part in parts]).T
    rate = int(later.sum()) / float(times[-1] - times[later][0])
    away = at - at.mean()
    slope = float(away @ level) / float(away @ away)
    left = level - level.mean() - slope * away
    error = float(np.sqrt((left @ left) / (BATCHES - 2) / (away @ away)))
    length = float(times[-1] - times[later][0]) / BATCHES
    return slope / rate, error / rate * max(1.0, 2 * answer_s / length) ** 0.5
