"""Every step takes the same time."""

from __future__ import annotations

from typing import Final

import numpy as np

from sim.core.price import CONSTANT, Price
from sim.core.price_table import Grid

NO_GRID: Final = Grid(np.zeros(0), np.zeros(0), np.zeros(0), np.zeros((0, 0, 0)), 0.0, np.zeros(2, np.int64))
"""The table of a price that has none."""


def constant_price(step_ns: float) -> Price:
    """Every step takes ``step_ns`` nanoseconds."""
    nothing = np.zeros(0)
    return Price(
        CONSTANT, float(step_ns), 0.0, 0.0, 0.0, 0.0, 0.0, np.zeros(0, np.int64), nothing, nothing.copy(), NO_GRID
    )
