"""Looking a step up in a measured table: its points, the lines between them, and beyond."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sim.core.price_table import Grid, looked_up

AXES = (np.array([0.0, 1.0, 4.0]), np.array([0.0, 100.0]), np.array([0.0, 10.0, 30.0]))


def grid(values: np.ndarray) -> Grid:
    return Grid(*AXES, values, float(values.min()), np.zeros(2, np.int64))


def plane(b: float, x: float, p: float) -> float:
    """A function that is linear along each axis."""
    return 1000 + 7 * b + 3 * x + 2 * p + b * x + 0.5 * x * p


PLANE = np.array([[[plane(b, x, p) for p in AXES[2]] for x in AXES[1]] for b in AXES[0]])


@given(st.floats(0, 10), st.floats(0, 300), st.floats(0, 90))
def test_what_is_linear_comes_back_inside_and_above(b: float, x: float, p: float) -> None:
    assert looked_up(grid(PLANE), b, x, p) == pytest.approx(plane(b, x, p))


def test_the_points_are_met() -> None:
    values = np.arange(1.0, 19.0).reshape(3, 2, 3)
    found = [looked_up(grid(values), b, x, p) for b in AXES[0] for x in AXES[1] for p in AXES[2]]
    assert found == values.ravel().tolist()


def test_below_the_first_point_it_is_as_there() -> None:
    shifted = Grid(AXES[0] + 1, AXES[1] + 50, AXES[2] + 5, PLANE, 1.0, np.zeros(2, np.int64))
    assert looked_up(shifted, 0, 0, 0) == PLANE[0, 0, 0]


def test_an_axis_of_one_point_does_not_matter() -> None:
    one = Grid(
        AXES[0], np.array([64.0]), np.array([0.0]), np.array([[[1.0]], [[2.0]], [[5.0]]]), 1.0, np.zeros(2, np.int64)
    )
    assert looked_up(one, 2.5, 9000, 77) == 3.5


def test_a_falling_line_stops_at_the_shortest_step() -> None:
    falling = Grid(
        AXES[0], np.array([0.0]), np.array([0.0]), np.array([[[9.0]], [[5.0]], [[2.0]]]), 2.0, np.zeros(2, np.int64)
    )
    assert looked_up(falling, 50, 0, 0) == 2.0
