"""Least squares without negative coefficients: known solutions, and the conditions that make one the best."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sim.calibrate.nnls import nnls, nnls_absolute


def test_a_known_solution_is_found() -> None:
    matrix = np.random.default_rng(0).random((40, 5))
    wanted = np.array([3.0, 0.0, 1e-3, 7.0, 0.0])
    assert nnls(matrix, matrix @ wanted) == pytest.approx(wanted, abs=1e-9)


def test_units_do_not_matter() -> None:
    matrix = np.random.default_rng(1).random((30, 4))
    units, wanted = np.array([1e-9, 1.0, 1e6, 1e12]), np.array([1.0, 2.0, 0.0, 4.0])
    assert nnls(matrix * units, matrix @ wanted) * units == pytest.approx(wanted, abs=1e-8)


@given(st.integers(0, 10_000), st.integers(1, 7), st.integers(1, 20))
def test_the_conditions_of_karush_kuhn_and_tucker_hold(seed: int, columns: int, rows: int) -> None:
    """No coefficient is negative, none at 0 wants to grow, and the gradient is 0 along those that are not."""
    rng = np.random.default_rng(seed)
    matrix, target = rng.normal(size=(rows, columns)), rng.normal(size=rows)
    found = nnls(matrix, target)
    gradient = matrix.T @ (target - matrix @ found)
    assert (found >= 0).all()
    assert (gradient <= 1e-7).all()
    assert np.abs(gradient[found > 0]).max(initial=0) <= 1e-7


def test_a_column_of_zeros_and_a_repeated_one() -> None:
    matrix = np.array([[1.0, 0.0, 1.0], [2.0, 0.0, 2.0], [1.0, 0.0, 1.0]])
    found = nnls(matrix, np.array([2.0, 4.0, 2.0]))
    assert matrix @ found == pytest.approx([2.0, 4.0, 2.0])
    assert found[1] == 0


def test_one_outlier_does_not_pull() -> None:
    matrix = np.random.default_rng(2).random((30, 3)) + 0.1
    wanted = np.array([1.0, 2.0, 3.0])
    target = matrix @ wanted
    target[7] *= 40
    assert nnls_absolute(matrix, target) == pytest.approx(wanted, rel=1e-3)
    assert nnls(matrix, target) != pytest.approx(wanted, rel=0.1)
