"""Least squares with coefficients that are not negative, and its robust sister, in NumPy.

Active sets after Lawson and Hanson, Solving Least Squares Problems (1974), chapter 23: coefficients enter one by one
where the gradient says so, and leave when they would turn negative.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

_ROUNDS = 60
_SMALLEST_RESIDUAL = 1e-3


def nnls(matrix: Floats, target: Floats) -> Floats:
    """The x >= 0 that makes ``|matrix @ x - target|`` least; columns that depend on others stay at 0.

    ``matrix`` is [rows, columns]. Columns are scaled to length 1 first, so that units do not matter.

    >>> nnls(np.array([[1.0, 0.0], [0.0, 1.0]]), np.array([2.0, -3.0]))
    array([2., 0.])
    """
    lengths = np.linalg.norm(matrix, axis=0)
    scale = np.where(lengths > 0, lengths, 1.0)
    scaled = matrix / scale
    solution, active = np.zeros(matrix.shape[1]), np.zeros(matrix.shape[1], bool)
    tolerance = 1e-12 * max(1.0, float(np.abs(scaled.T @ target).max(initial=0.0)))
    for _ in range(3 * matrix.shape[1] + 3):
        gradient = scaled.T @ (target - scaled @ solution)
        gradient[active] = -np.inf
        entering = int(gradient.argmax()) if gradient.size else 0
        if not gradient.size or gradient[entering] <= tolerance:
            break
        active[entering] = True
        solution = _feasible(scaled, target, solution, active)
    return solution / scale


def _feasible(matrix: Floats, target: Floats, solution: Floats, active: NDArray[np.bool_]) -> Floats:
    """The least-squares solution over the active columns, after taking out those that block the way to it."""
    while active.any():
        wanted = np.zeros_like(solution)
        wanted[active] = np.linalg.lstsq(matrix[:, active], target, rcond=1e-10)[0]
        blocked = active & (wanted <= 0)
        if not blocked.any():
            return wanted
        ratio: Any = solution[blocked] / np.maximum(solution[blocked] - wanted[blocked], 1e-300)
        solution = solution + ratio.min() * (wanted - solution)
        solution[blocked & (solution <= 1e-15)] = 0.0
        leaving = blocked & (solution <= 0)
        active &= ~(leaving if leaving.any() else blocked)
        solution = np.where(active, solution, 0.0)
    return np.zeros_like(solution)


def nnls_absolute(
    matrix: Floats,
    target: Floats,
    weights: Floats | None = None,
    *,
    prior: Floats | None = None,
    pull: Floats | float = 0.0,
) -> Floats:
    """The x >= 0 with the least sum of weighted absolute residuals: one outlier does not pull the rest along.

    Solved by reweighting: rows count by the inverse of their last residual. With ``matrix`` and ``target`` divided by
    what was measured, residuals are relative errors. ``prior`` (greater than 0) is what x is near where the rows do not
    say otherwise: ``sum(pull * (x / prior - 1)^2)`` is added to the sum.
    """
    given = np.ones(len(target)) if weights is None else weights
    guess = np.ones(matrix.shape[1]) if prior is None else prior
    wanted = np.sqrt(np.broadcast_to(pull, guess.shape))
    pulls = np.diag(wanted / guess)
    row_weights, solution = given, np.zeros(matrix.shape[1])
    for _ in range(_ROUNDS):
        root = np.sqrt(row_weights)
        before = solution
        solution = nnls(np.vstack([matrix * root[:, None], pulls]), np.concatenate([target * root, wanted]))
        if np.allclose(before, solution, rtol=1e-7, atol=0):
            break
        row_weights = given / np.maximum(np.abs(matrix @ solution - target), _SMALLEST_RESIDUAL)
    return solution
