"""Series over time: the steps of each engine in their order, engines of one role as one, thinned without losing a peak.

steps of replica 0   |  3  |  1  | idle |  2  |
steps of replica 1   | 5 | 5 | 4 | 4 | 4 | 3  |   mean over the replicas, lowest and highest of any of them
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray


class Band(NamedTuple):
    """A step series cut into slices of time: where each begins, and its lowest, mean and highest value."""

    time: NDArray[np.float64]
    low: NDArray[np.float64]
    mean: NDArray[np.float64]
    high: NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Timelines:
    """Engines of one role side by side; ``role`` is empty where all engines of a run do the same.

    ``engines``: of each the times at which its values change, in seconds since the run's first step, and the row of
    ``steps`` that holds from there on (-1: idle). ``end_s``: when the run's last step ends.
    """

    role: str
    engines: Sequence[tuple[NDArray[np.float64], NDArray[np.intp]]]
    end_s: float

    def band(self, values: NDArray[Any], scale: float = 1.0, slices: int = 300) -> Band:
        """``values`` ([steps]) over time in units of ``scale`` seconds; zero while an engine is idle.

        Of several engines the mean is over them, and the band from the lowest to the highest of any.
        """
        padded = np.append(np.asarray(values, np.float64), 0.0)
        series = [(time / scale, padded[rows]) for time, rows in self.engines]
        return band(*series[0], slices) if len(series) == 1 else spread(series, self.end_s / scale, slices)

    def drawn_in_full(self, slices: int = 300) -> bool:
        """Whether a band of so many slices has every value at its own time."""
        return len(self.engines) == 1 and len(self.engines[0][0]) <= slices

    def rows(self) -> NDArray[np.intp]:
        """The rows of ``steps`` that are theirs."""
        return np.concatenate([rows[rows >= 0] for _, rows in self.engines])

    def instants(self, values: NDArray[Any]) -> NDArray[np.float64]:
        """When steps with a value above zero begin, in seconds, in order."""
        positive = np.append(np.asarray(values) > 0, False)
        return np.sort(np.concatenate([time[positive[rows]] for time, rows in self.engines]))


def timelines(steps: Mapping[str, Any], roles: Sequence[str] = (), *, idle: bool = True) -> list[Timelines]:
    """The engines of a run by role, in the order in which roles first come.

    ``roles``: of each replica (see `sim.report.roles`). Thinned steps do not show when an engine was idle, and without
    ``idle`` an engine keeps the values of its last step until the next.
    """
    start, end = (np.asarray(steps[name], np.float64) for name in ("start_s", "end_s"))
    replica = np.asarray(steps["replica"] if "replica" in steps else np.zeros(len(start), np.int64))
    first = float(start.min(initial=np.inf)) if len(start) else 0.0
    found: dict[str, list[tuple[NDArray[np.float64], NDArray[np.intp]]]] = {}
    for one in np.unique(replica).tolist() or [0]:
        mine = np.flatnonzero(replica == one)
        time, rows = _moments(start[mine] - first, end[mine] - first, np.asarray(steps["step"])[mine], idle=idle)
        role = roles[one] if one < len(roles) else ""
        found.setdefault(role, []).append((time, np.where(rows < 0, -1, mine[rows]) if len(mine) else rows))
    last = float(end.max(initial=-np.inf)) - first if len(end) else 0.0
    return [Timelines(role, engines, last) for role, engines in found.items()]


def _moments(
    start: NDArray[np.float64], end: NDArray[np.float64], number: NDArray[Any], *, idle: bool
) -> tuple[NDArray[np.float64], NDArray[np.intp]]:
    """Times of one engine's steps, and for each its step (-1: idle)."""
    if idle and len(number) and number[-1] - number[0] == len(number) - 1:
        return with_idle(start, end)
    return start, np.arange(len(start))


def with_idle(start: NDArray[np.float64], end: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.intp]]:
    """Times of a step series with a point where the engine falls idle, and for each time its step, -1 for idle.

    Nothing runs and no block is held between the end of a step and a later start of the next.

    >>> with_idle(np.array([0.0, 1.0, 5.0]), np.array([1.0, 2.0, 6.0]))
    (array([0., 1., 2., 5., 6.]), array([ 0,  1, -1,  2, -1]))
    """
    if not len(start):
        return start, np.zeros(0, np.intp)
    idle = np.append(start[1:] > end[:-1], True)
    steps = np.repeat(np.arange(len(start)), 1 + idle)
    second = np.append(False, steps[1:] == steps[:-1])
    return np.where(second, end[steps], start[steps]), np.where(second, -1, steps)


def band(time: NDArray[np.float64], values: NDArray[Any], slices: int = 300) -> Band:
    """At most ``slices`` slices of equal duration: a million steps drawn without losing a peak.

    A value lasts until the next one; it counts for the slice it begins in.

    >>> band(np.array([0.0, 1.0, 2.0, 10.0]), np.array([0, 3, 1, 5]), slices=2).high.tolist()
    [3.0, 5.0]
    """
    points = np.asarray(values, np.float64)
    if len(time) <= slices:
        return Band(time, points, points, points)
    slice_of = np.minimum((time - time[0]) * (slices / max(time[-1] - time[0], 1e-12)), slices - 1).astype(np.int64)
    starts = np.flatnonzero(np.diff(slice_of, prepend=-1))
    lasting = np.append(np.diff(time), 0.0) + 1e-12
    mean = np.add.reduceat(points * lasting, starts) / np.add.reduceat(lasting, starts)
    return Band(time[starts], np.minimum.reduceat(points, starts), mean, np.maximum.reduceat(points, starts))


def spread(series: Sequence[tuple[NDArray[np.float64], NDArray[Any]]], end: float, slices: int = 300) -> Band:
    """Step series side by side from 0 to ``end``: in each slice the mean over them, the lowest and highest of any.

    A series is 0 before its first time; its last value lasts to the end.

    >>> two = spread([(np.array([0.0, 2.0]), np.array([4, 0])), (np.array([1.0]), np.array([6]))], 4.0, slices=2)
    >>> two.low.tolist(), two.mean.tolist(), two.high.tolist()
    ([0.0, 0.0], [3.5, 3.0], [6.0, 6.0])
    """
    edges = np.linspace(0.0, max(end, 1e-12), slices + 1)
    each = [_sliced(np.append(-1.0, time), np.append(0.0, values), edges) for time, values in series]
    low, mean, high = (np.stack(columns) for columns in zip(*each, strict=True))
    return Band(edges[:-1], low.min(0), mean.mean(0), high.max(0))


def _sliced(
    time: NDArray[np.float64], values: NDArray[np.float64], edges: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """Lowest, mean and highest of the values that hold somewhere in each slice; the first holds from the beginning.

    time      |  a   |  b | c |    d       |
    edges         |         |        |
    values         a  b   c    c d          of the first slice a, b, c, of the second c, d
    """
    carried = np.searchsorted(time, edges[:-1], side="right") - 1
    latest = np.searchsorted(time, edges[1:], side="left") - 1
    low = np.minimum(np.minimum.reduceat(values, carried), values[latest])
    high = np.maximum(np.maximum.reduceat(values, carried), values[latest])
    low[-1] = values[carried[-1] : latest[-1] + 1].min()  # the last slice ends where the run does
    high[-1] = values[carried[-1] : latest[-1] + 1].max()
    area = np.append(0.0, np.cumsum(values[:-1] * np.diff(np.maximum(time, 0.0))))
    past = values[-1] * np.maximum(edges - time[-1], 0.0)
    mean = np.diff(np.interp(edges, np.maximum(time, 0.0), area) + past) / np.diff(edges)
    return low, mean, high
