"""Bracketing and bisection: double or halve until one end passes and the other does not, then close in.

The values tried are those of a grid of ``1 + tolerance`` steps around the start, so that variants and seeds meet the
same loads, drawn with the same random numbers::

    rate    1 ok   2 ok   4 ok   8 fails        bracketing
                          4 ok  5.6 ok  6.7 fails  6.2 ok ...    bisection in between, by ratio
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from sim.load import OVERLOADED

REFUSED = "refused"
"""The verdict on an engine that does not start, or on a run that nothing can unblock."""
DOUBLINGS = 12
"""Bracketing gives up after so many doublings or halvings."""


@dataclass(frozen=True, slots=True)
class Probe:
    """One run at ``value``: what each target's quantity was, whether all are met, and whether the run kept up.

    ``verdict`` is of `sim.load`, or ``refused``. A run that meets its targets while it is overloaded only does so
    because it ended: it does not pass. One that is too short to tell passes, and whatever rests on it says so.
    ``tenths``: in how many of ten equal parts of the run, by order of arrival, the latencies meet the targets by
    themselves. ``lengthened``: how many times as many requests it was given as the scenario has, so that it could be
    told whether it keeps up. ``latency_class``: how far its times can be trusted.
    """

    value: float
    numbers: tuple[float | None, ...]
    met: bool
    verdict: str
    tenths: int | None = None
    note: str = ""
    lengthened: int = 1
    latency_class: str | None = None

    @property
    def passes(self) -> bool:
        """Whether the targets are met by a run that keeps up."""
        return self.met and self.verdict not in (OVERLOADED, REFUSED)

    @property
    def looks_good_because_it_ended(self) -> bool:
        """Whether the targets are met only since the run was over before the queue was long."""
        return self.met and self.verdict == OVERLOADED


def find_limit(
    probe: Callable[[float], Probe], start: float, *, most: bool, whole: bool, tolerance: float = 0.02
) -> tuple[float | None, list[Probe]]:
    """The largest (``most``) or smallest value whose probe passes, to ``tolerance``, and all probes in order.

    None when none passes between the start and 2^12 times less (or more). ``whole``: only whole numbers, exactly.

    >>> def probe(x):
    ...     return Probe(x, (x,), x < 5.3, "stable")
    >>> find_limit(probe, 1.0, most=True, whole=True)[0]
    5.0
    """
    tried: dict[float, Probe] = {}

    def passes(value: float) -> bool:
        if value not in tried:
            tried[value] = probe(value)
        return tried[value].passes

    good, bad = _bracket(passes, max(round(start), 1) if whole else start, most, whole)
    if good is None:
        return None, list(tried.values())
    while bad is not None and not _close(good, bad, whole, tolerance):
        middle = math.sqrt(good * bad)
        if whole:
            middle = float(min(max(round(middle), min(good, bad) + 1), max(good, bad) - 1))
        if passes(middle):
            good = middle
        else:
            bad = middle
    return good, list(tried.values())


def _bracket(
    passes: Callable[[float], bool], start: float, most: bool, whole: bool
) -> tuple[float | None, float | None]:
    """A value that passes and one beyond it that does not; None for one that was not found."""
    good: float | None = None
    bad: float | None = None
    value = float(start)
    for _ in range(DOUBLINGS):
        if passes(value):
            good = value
        else:
            bad = value
        if good is not None and bad is not None:
            break
        harder = good is not None
        value = value * 2 if harder == most else value / 2
        if whole and value < 1:
            break
        value = float(math.floor(value)) if whole else value
    return good, bad


def _close(good: float, bad: float, whole: bool, tolerance: float) -> bool:
    return abs(good - bad) <= 1 if whole else max(good, bad) / min(good, bad) <= 1 + tolerance
