"""From numbers to places on a chart: scales, ticks and their labels."""

from __future__ import annotations

import math
from dataclasses import dataclass

from matplotlib.ticker import MaxNLocator


@dataclass(frozen=True, slots=True)
class Scale:
    """A range of numbers laid over a range of the drawing; ``log`` in the exponent.

    >>> Scale(0, 10, 100, 200)(2.5)
    125.0
    >>> Scale(1, 100, 0, 200, log=True)(10)
    100.0
    """

    low: float
    high: float
    start: float
    end: float
    log: bool = False

    def __call__(self, value: float) -> float:
        """The place of a value; one outside the range lies outside."""
        if self.log:
            value = max(value, self.low * 1e-3)
            part = math.log(value / self.low) / math.log(self.high / self.low)
        else:
            part = (value - self.low) / (self.high - self.low)
        return round(self.start + part * (self.end - self.start), 2)

    def ticks(self, most: int = 6) -> list[float]:
        """Round numbers inside the range: decades, or 1-2-5 steps where there are too few.

        >>> Scale(0, 103, 0, 1).ticks()
        [0.0, 25.0, 50.0, 75.0, 100.0]
        >>> Scale(0.5, 300, 0, 1, log=True).ticks()
        [1.0, 10.0, 100.0]
        """
        if not self.log:
            found = MaxNLocator(most - 1, steps=[1, 2, 2.5, 5, 10]).tick_values(self.low, self.high)
            return [round(float(tick), 12) for tick in found if self.low - 1e-12 <= tick <= self.high * (1 + 1e-12)]
        powers = range(math.floor(math.log10(self.low)), math.ceil(math.log10(self.high)) + 1)
        inside: list[float] = []
        for factors in ((1,), (1, 3), (1, 2, 5)):
            ticks = [factor * 10.0**power for power in powers for factor in factors]
            inside = [tick for tick in ticks if self.low <= tick <= self.high]
            if len(inside) >= 3:
                return inside[:: -(-len(inside) // most)]
        return inside


def span(values: list[float], *, log: bool) -> tuple[float, float]:
    """A range that holds all ``values``: from zero, or for a log scale with a little room on both sides.

    >>> span([1.0, 4.0], log=False), span([], log=True), span([0.0], log=False)
    ((0.0, 4.0), (0.1, 10.0), (0.0, 1.0))
    """
    numbers = [value for value in values if math.isfinite(value) and (value > 0 or not log)]
    if log:
        return (min(numbers) / 1.15, max(numbers) * 1.15) if numbers else (0.1, 10.0)
    top = max(numbers, default=0.0)
    return min(0.0, *numbers) if numbers else 0.0, top if top > 0 else 1.0


def short(value: float) -> str:
    """A number for an axis.

    >>> short(0.25), short(1500), short(12000), short(2.5e6), short(0)
    ('0.25', '1,500', '12k', '2.5M', '0')
    """
    for limit, unit in ((1e9, "G"), (1e6, "M"), (1e4, "k")):
        if abs(value) >= limit:
            scaled = value / (1e3 if unit == "k" else limit)
            return f"{scaled:,.4g}{unit}"
    return f"{value:,.4g}"
