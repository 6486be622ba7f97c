"""The simulator's price of a step, and its coefficients fitted to measured steps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gpu_check.throughput.body import Body
from gpu_check.throughput.composition import Composition
from sim.calibrate.nnls import nnls_absolute
from sim.core.price import Price, attended_pairs, read_tokens
from sim.hardware import Gpu
from sim.step_time import make_step_time

Floats = NDArray[np.float64]
UNMEASURED = ("g", "c0_ms")
"""All-reduce and the API's delay: one device without requests from outside shows neither."""


@dataclass(frozen=True, slots=True)
class Fit:
    """Coefficients by name, and mean absolute errors in percent: of the fitted steps, and of steps left out of it."""

    coefficients: dict[str, float]
    in_sample_pct: float
    left_out_pct: float
    points: int


def price_ns(price: Price, step: Composition) -> float:
    """Nanoseconds of a step under an additive price: what :mod:`sim.core.price` adds up, for one composition."""
    total = price.fixed_ns + price.token_ns * step.tokens + price.request_ns * len(step.news)
    if price.experts > 0:
        total += price.expert_ns * (1 - (1 - price.experts_per_token / price.experts) ** step.tokens)
    for start, new in zip(step.starts, step.news, strict=True):
        for window, pair, read in zip(price.window.tolist(), price.pair_ns, price.read_ns, strict=True):
            total += pair * attended_pairs(start, new, window) + read * read_tokens(start, new, window)
    return float(total)


def additive(coefficients: Mapping[str, float], body: Body, gpu: Gpu) -> Price:
    """The simulator's additive price of a body with these coefficients, which are relative to the peaks of ``gpu``."""
    return make_step_time({"kind": "additive", **coefficients}, body.model, body.engine, gpu).price


def priors(body: Body, gpu: Gpu) -> dict[str, float]:
    """The coefficients that the simulator assumes where none are given, all of them."""
    settings = make_step_time({"kind": "additive"}, body.model, body.engine, gpu).settings
    return {name: float(value) for name, value in settings.items() if isinstance(value, int | float)}


def terms(names: Sequence[str], body: Body, gpu: Gpu, steps: Sequence[Composition]) -> Floats:
    """[steps, names]: seconds of each step per unit of each coefficient; a price is linear in them."""
    columns = []
    for name in names:
        one = additive({**dict.fromkeys(priors(body, gpu), 0.0), name: 1.0}, body, gpu)
        columns.append([price_ns(one, step) * 1e-9 for step in steps])
    return np.array(columns).T


def fit(body: Body, gpu: Gpu, steps: Sequence[Composition], seconds: Floats) -> Fit:
    """Non-negative coefficients with the least absolute relative error; those not measured stay at their priors.

    Left out is, in turn, one decile of the steps ordered by their time.
    """
    assumed = priors(body, gpu)
    names = [name for name in assumed if name not in UNMEASURED]
    matrix = terms(names, body, gpu, steps) / seconds[:, None]
    solution = nnls_absolute(matrix, np.ones(len(steps)))
    return Fit(
        {**assumed, **dict(zip(names, solution.tolist(), strict=True))},
        100 * float(np.abs(matrix @ solution - 1).mean()),
        100 * float(np.abs(_left_out(matrix, seconds) - 1).mean()),
        len(steps),
    )


def _left_out(matrix: Floats, seconds: Floats, folds: int = 10) -> Floats:
    """What each step is predicted to take, over what it took, by a fit to the steps outside its fold."""
    fold = np.argsort(np.argsort(seconds, kind="stable")) * min(folds, len(seconds)) // len(seconds)
    found = np.zeros(len(seconds))
    for i in range(int(fold.max()) + 1):
        inside = fold == i
        solution = nnls_absolute(matrix[~inside], np.ones(int((~inside).sum())))
        found[inside] = matrix[inside] @ solution
    return found


def predicted_s(coefficients: Mapping[str, float], body: Body, gpu: Gpu, steps: Sequence[Composition]) -> Floats:
    """Seconds that the simulator predicts for the steps of a body, without what was not run (:data:`UNMEASURED`)."""
    run: dict[str, Any] = {**coefficients, **dict.fromkeys(UNMEASURED, 0.0)}
    price = additive(run, body, gpu)
    return np.array([price_ns(price, step) * 1e-9 for step in steps])
