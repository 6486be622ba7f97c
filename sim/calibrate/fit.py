"""Coefficients from serving points: least relative error, near the priors where the points do not say otherwise.

Means of a point are linear in the coefficients where clients send the next request as soon as the last is answered.
With the time that an answer takes to reach them, and at a given rate of arrivals, they are nearly so: each solution is
simulated, and the equations are made exact there, until the solution stays. What the points say nothing about (one
tensor parallel size: all-reduces) stays at its prior; what they cannot tell apart is shared out by the priors.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from sim.calibrate.nnls import nnls_absolute
from sim.calibrate.points import Point
from sim.calibrate.simulate import MEANS, Floats, Sensitivities, point_scenario, serve
from sim.errors import InputError
from sim.hardware import find_gpu
from sim.scenario import Scenario
from sim.step_time.additive import COEFFICIENTS, additive_price, priors

PULL: Final = np.array([0.3, 0.3, 1.0, 3.0, 0.1, 0.1, 0.3, 0.05])
"""Weight of each coefficient's prior, when it is off by its own size, against the sum of relative errors.

With points that scatter by 3 %, 0.3 is a prior good to half its size, 3 one good to 15 %: how fast attention reads a
cache was measured on its own. Fixed costs fell from release to release, and a delay outside the engine is any size.
"""
HELD, WEAK = 0.03, 0.5
"""Of what is known of a coefficient, the share that the points say: when all others are known (below: it stays at its
prior), and when they are free to make up for it (below: the prior decides)."""
_WEIGHTS: Final = (0.5, 1.0, 0.5)
_TYPICAL_ERROR: Final = 0.03
_CHANGE: Final = 0.1
_ROUNDS: Final = 3
_CLOSE: Final = 0.02


@dataclass(frozen=True, slots=True)
class Rows:
    """Relative equations of one point: ``matrix @ coefficients = target`` for each of its measured means."""

    matrix: Floats
    target: Floats
    weights: Floats


@dataclass(frozen=True, slots=True)
class Fit:
    """Coefficients in the order of ``COEFFICIENTS``.

    ``held`` are those the points say nothing about, which stayed at their prior; ``weak`` those that the points cannot
    tell from others, so that the priors decide between them.
    """

    coefficients: Floats
    held: tuple[str, ...]
    weak: tuple[str, ...]

    def section(self) -> dict[str, Any]:
        """The ``step_time`` section of a scenario."""
        return {"kind": "additive", **named(self.coefficients)}


def named(coefficients: Floats) -> dict[str, float]:
    """Coefficients under their names, with the four digits that mean something.

    >>> named(np.arange(8) / 3)["b_kv"]
    1.0
    """
    return {name: float(f"{value:.4g}") for name, value in zip(COEFFICIENTS, coefficients.tolist(), strict=True)}


class Calibration:
    """Points of one model on one GPU, simulated from a common ``base``: model, hardware, engine, memory, seed.

    ``counts`` tells which points are fitted, ``progress`` hears what is being done. Raises InputError and RefusalError
    for a point that cannot be simulated.
    """

    def __init__(
        self,
        base: Mapping[str, Any],
        points: Sequence[Point],
        known: Sensitivities | None = None,
        counts: NDArray[np.bool_] | None = None,
        progress: Callable[[str], None] = lambda _: None,
    ) -> None:
        self.base = base
        self.points = list(points)
        self.counts = np.ones(len(self.points), bool) if counts is None else counts
        self._known = known or Sensitivities()
        self._progress = progress
        first = self.scenario(self.points[0], {})
        self.prior = np.array([self._priors(first)[name] for name in COEFFICIENTS])

    def scenario(self, point: Point, section: Mapping[str, Any]) -> Scenario:
        """The scenario of a point with the given step times; priors where ``section`` is empty."""
        if not section:
            probe = point_scenario(self.base, point, {"kind": "constant", "seconds": 1.0})
            section = {"kind": "additive", **self._priors(probe)}
        return point_scenario(self.base, point, section)

    def _priors(self, scenario: Scenario) -> dict[str, float]:
        return priors(scenario.model, scenario.engine, find_gpu(scenario.gpu or "", where="hardware.gpu"))

    def rows(self, around: Floats | None = None) -> list[Rows]:
        """The equations of all points, exact for the coefficients ``around`` and nearly so in their neighbourhood."""
        centre = self.prior if around is None else around
        found = []
        for done, point in enumerate(self.points):
            self._progress(f"simulating point {done + 1} of {len(self.points)}")
            base = self.means(point, centre)
            matrix = self._slopes(point) if point.concurrency is not None else self._changes(point, centre, base)
            found.append(_relative(point, matrix, base - matrix @ centre))
        return found

    def _slopes(self, point: Point) -> Floats:
        """How each mean grows with each coefficient where clients wait for their answers, [3, coefficients]."""
        scenario = self.scenario(point, {})
        gpu = find_gpu(scenario.gpu or "")
        alone = np.eye(len(COEFFICIENTS))[:-1]
        prices = [
            additive_price(dict(zip(COEFFICIENTS, row.tolist(), strict=True)), scenario.model, scenario.engine, gpu)
            for row in alone
        ]
        whole = additive_price(self._priors(scenario), scenario.model, scenario.engine, gpu)
        return self._known.of(scenario, whole).rows(prices).T

    def _changes(self, point: Point, centre: Floats, base: Floats) -> Floats:
        """The same at a given rate of arrivals, by small changes of each coefficient around ``centre``."""
        slopes = []
        for position, value in enumerate(centre.tolist()):
            step = _CHANGE * (value or self.prior[position])
            moved = centre.copy()
            moved[position] += step
            slopes.append((self.means(point, moved) - base) / step)
        return np.array(slopes).T

    def means(self, point: Point, coefficients: Floats) -> Floats:
        """TTFT, TPOT and seconds per output token of a point, simulated end to end."""
        return serve(self.scenario(point, {"kind": "additive", **named(coefficients)})).means

    def fit(self) -> tuple[Fit, list[Rows]]:
        """The coefficients that fit all points but those without weight, and the equations around them.

        Raises InputError where the points determine no coefficient at all.
        """
        rows = self.rows()
        found = self.solve(rows)
        for _ in range(_ROUNDS):
            rows = self.rows(found.coefficients)
            before, found = found, self.solve(rows)
            if np.allclose(before.coefficients, found.coefficients, rtol=_CLOSE):
                break
        return found, rows

    def solve(self, rows: Sequence[Rows], chosen: NDArray[np.bool_] | None = None) -> Fit:
        """The coefficients that fit the equations of the ``chosen`` points (all those that count)."""
        used = self.counts if chosen is None else self.counts & chosen
        return _solve([row for row, use in zip(rows, used, strict=True) if use], self.prior)

    def left_out(self, rows: Sequence[Rows]) -> Floats:
        """Means of each point by coefficients fitted without its kind of requests (or without it), by the equations.

        [points, 3], NaN where too little is left to fit.
        """
        kinds = [point.lengths for point in self.points]
        groups = kinds if len(set(kinds)) > 1 else list(range(len(kinds)))
        predicted = np.full((len(self.points), len(MEANS)), np.nan)
        for group in dict.fromkeys(groups):
            out = np.array([other == group for other in groups])
            if (~out).sum() < 2:
                continue
            fitted = self.solve(rows, ~out)
            for position in np.flatnonzero(out).tolist():
                predicted[position] = predictions(self.points[position], rows[position], fitted.coefficients)
        return predicted


def _relative(point: Point, matrix: Floats, offset: Floats) -> Rows:
    """The equations of a point divided by what was measured; a measured throughput stands for its inverse."""
    wanted = np.array([point.measured.get(name, np.nan) for name in MEANS])
    wanted[2] = 1 / wanted[2]
    there = ~np.isnan(wanted)
    scale = wanted[there]
    return Rows(matrix[there] / scale[:, None], 1 - offset[there] / scale, np.array(_WEIGHTS)[there])


def predictions(point: Point, rows: Rows, coefficients: Floats) -> Floats:
    """What the equations of a point say for its measured means, in their own units; NaN for the others."""
    wanted = np.array([point.measured.get(name, np.nan) for name in MEANS])
    ratio = rows.matrix @ coefficients + 1 - rows.target
    there = ~np.isnan(wanted)
    wanted[there] *= np.where(np.array([False, False, True])[there], 1 / ratio, ratio)
    return wanted


def _solve(rows: Sequence[Rows], prior: Floats) -> Fit:
    matrix = np.vstack([row.matrix for row in rows])
    target, weights = (np.concatenate([getattr(row, name) for row in rows]) for name in ("target", "weights"))
    seen, shares = determined(matrix * prior, weights, PULL)
    held = seen < HELD
    if held.all():
        raise InputError(
            "these points determine no coefficient; give points of several concurrencies, lengths and "
            "tensor parallel sizes",
            where="points",
        )
    solution = prior.copy()
    rest = target - matrix[:, held] @ prior[held]
    solution[~held] = nnls_absolute(matrix[:, ~held], rest, weights, prior=prior[~held], pull=PULL[~held])
    return Fit(solution, *(_names(chosen) for chosen in (held, ~held & (shares < WEAK))))


def _names(chosen: NDArray[np.bool_]) -> tuple[str, ...]:
    return tuple(name for name, here in zip(COEFFICIENTS, chosen, strict=True) if here)


def determined(matrix: Floats, weights: Floats, pull: Floats) -> tuple[Floats, Floats]:
    """Which share of what is known of each coefficient the rows say, were all others known, and with those free.

    ``matrix`` is scaled to priors of 1. 0: they say nothing, all is the prior's; near 1: the prior does not matter.

    >>> rows = np.array([[1.0, 0.5, 0.0], [0.5, 0.25, 0.0]])
    >>> [shares.round(2).tolist() for shares in determined(rows, np.ones(2), np.full(3, 0.3))]
    [[0.99, 0.97, 0.0], [0.8, 0.2, 0.0]]
    """
    information = (matrix * (weights / _TYPICAL_ERROR)[:, None]).T @ matrix
    alone = []
    for position in range(len(information)):
        others = np.arange(len(information)) != position
        cross = information[others, position]
        within = information[np.ix_(others, others)] + np.diag(pull[others])
        alone.append(information[position, position] - cross @ np.linalg.solve(within, cross))
    seen, own = information.diagonal(), np.maximum(np.array(alone), 0.0)
    return seen / (seen + pull), own / (own + pull)
