"""Where random numbers come from: one independent stream per quantity, and distributions over it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from workloads.columns import MAX_SECONDS, MAX_TOKENS
from workloads.content import I64, hash_text
from workloads.replay import KEYS as TRACE_KEYS
from workloads.replay import open_trace
from workloads.settings import Settings

F64: TypeAlias = NDArray[np.float64]
Unit = Literal["tokens", "seconds"]

# Settings of each kind besides `kind` itself.
KINDS: dict[str, tuple[str, ...]] = {
    "fixed": ("value",),
    "uniform": ("min", "max"),
    "lognormal": ("mean", "median", "cv", "sigma", "min", "max"),
    "exponential": ("mean", "min", "max"),
    "empirical": ("values", "weights", "trace", "column", "limit"),
}
TRACE_ROWS = 100_000
COLUMNS = ("prompt_tokens", "output_tokens")


def stream(seed: int, quantity: str) -> np.random.Generator:
    """The generator of one quantity: adding another quantity never changes its draws."""
    return np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(hash_text(f"stream/{quantity}"),)))


@dataclass(frozen=True, slots=True)
class Distribution:
    """A distribution of token counts or of seconds; samples outside ``low`` to ``high`` are moved to the bound."""

    kind: str
    unit: Unit
    low: float
    high: float
    first: float = 0.0
    second: float = 0.0
    values: tuple[float, ...] = ()
    weights: tuple[float, ...] = ()

    def draw(self, rng: np.random.Generator, n: int) -> F64:
        """``n`` samples; whole numbers when the unit is tokens."""
        match self.kind:
            case "fixed":
                samples = np.full(n, self.first)
            case "uniform" if self.unit == "tokens":
                samples = rng.integers(int(self.low), int(self.high), n, endpoint=True).astype(np.float64)
            case "uniform":
                samples = rng.uniform(self.low, self.high, n)
            case "lognormal":
                samples = rng.lognormal(self.first, self.second, n)
            case "exponential":
                samples = rng.exponential(self.first, n)
            case _:
                chances = np.cumsum(self.weights)
                places = np.searchsorted(chances / chances[-1], rng.random(n), side="right")
                samples = np.array(self.values)[np.minimum(places, len(self.values) - 1)]
        samples = np.clip(samples, self.low, self.high)
        return np.asarray(np.rint(samples) if self.unit == "tokens" else samples, dtype=np.float64)

    def tokens(self, rng: np.random.Generator, n: int) -> I64:
        """``n`` samples as whole numbers."""
        return self.draw(rng, n).astype(np.int64)


def distribution(
    settings: Settings, key: str, unit: Unit, base_dir: Path, seed: int, *, default: float | None = None
) -> Distribution:
    """Read the distribution under ``key``: a number (fixed) or a mapping with a ``kind``."""
    low, high = (1.0, float(MAX_TOKENS)) if unit == "tokens" else (0.0, float(MAX_SECONDS))
    given = settings.get(key, default)
    if not isinstance(given, dict):
        return Distribution("fixed", unit, low, high, first=bounded(settings, key, unit, default=default))
    kind = Settings(given, settings.path(key), ("kind", *unique(KINDS))).choice("kind", tuple(KINDS))
    own = Settings(given, settings.path(key), ("kind", *KINDS[kind]))
    if kind == "fixed":
        return Distribution(kind, unit, low, high, first=bounded(own, "value", unit))
    if kind == "empirical":
        return empirical(own, unit, low, high, base_dir, seed, default_column=key)
    least = bounded(own, "min", unit, default=None if kind == "uniform" else low)
    most = bounded(own, "max", unit, default=None if kind == "uniform" else high)
    if least > most:
        raise own.error("min", f"{least:g} is above max, {most:g}")
    first, second = (0.0, 0.0) if kind == "uniform" else shape(own, kind)
    return Distribution(kind, unit, least, most, first, second)


def unique(kinds: dict[str, tuple[str, ...]]) -> list[str]:
    """All setting names of the kinds, each once."""
    return list(dict.fromkeys(name for names in kinds.values() for name in names))


def bounded(settings: Settings, key: str, unit: Unit, *, default: float | None = None) -> float:
    """One value of the unit: a whole number of tokens from 1, or seconds from 0."""
    if unit == "tokens":
        return float(settings.integer(key, 1, MAX_TOKENS, None if default is None else int(default)))
    return settings.number(key, 0, MAX_SECONDS, default)


def shape(settings: Settings, kind: str) -> tuple[float, float]:
    """(mean, 0) of an exponential; (mu, sigma) of a lognormal from mean or median and cv or sigma.

    >>> own = Settings({"kind": "lognormal", "median": 100, "sigma": 0.5}, "x", ("kind", *KINDS["lognormal"]))
    >>> shape(own, "lognormal") == (math.log(100), 0.5)
    True
    """
    if kind == "exponential":
        return settings.number("mean", 0, MAX_SECONDS, above=True), 0.0
    for one, other in (("mean", "median"), ("cv", "sigma")):
        if (one in settings) == (other in settings):
            raise settings.error(one, f"a lognormal takes exactly one of {one} and {other}")
    if "sigma" in settings:
        sigma = settings.number("sigma", 0, 10)
    else:
        sigma = math.sqrt(math.log1p(settings.number("cv", 0, 1000) ** 2))
    if "median" in settings:
        return math.log(settings.number("median", 0, MAX_TOKENS, above=True)), sigma
    return math.log(settings.number("mean", 0, MAX_TOKENS, above=True)) - sigma**2 / 2, sigma


def empirical(
    settings: Settings, unit: Unit, low: float, high: float, base_dir: Path, seed: int, *, default_column: str
) -> Distribution:
    """Values given as a list, with weights if they differ, or taken from a column of a trace."""
    if ("values" in settings) == ("trace" in settings):
        raise settings.error("values", "an empirical distribution takes exactly one of values and trace")
    if "trace" in settings:
        if unit == "seconds":
            raise settings.error("trace", "a trace gives token counts, not seconds; give values")
        column = settings.choice("column", COLUMNS, default_column if default_column in COLUMNS else COLUMNS[0])
        values, weights = histogram(settings, column, base_dir, seed)
    else:
        values = numbers(settings, "values", low, high, whole=unit == "tokens")
        weights = numbers(settings, "weights", 0, 1e300) if "weights" in settings else [1.0] * len(values)
    if len(weights) != len(values):
        raise settings.error("weights", f"{len(weights)} weights for {len(values)} values")
    if not 0 < math.fsum(weights) < math.inf:
        raise settings.error("weights", "the weights must sum to a finite number above 0")
    return Distribution("empirical", unit, low, high, values=tuple(values), weights=tuple(weights))


def numbers(settings: Settings, key: str, low: float, high: float, *, whole: bool = False) -> list[float]:
    """A non-empty list of numbers from ``low`` to ``high``."""
    given = settings.get(key)
    kinds = (int,) if whole else (int, float)
    fits = isinstance(given, Sequence) and not isinstance(given, str) and len(given) > 0
    if not fits or not all(type(value) in kinds and low <= value <= high for value in given):
        what = "whole numbers" if whole else "numbers"
        raise settings.error(key, f"expected a list of one or more {what} from {low:g} to {high:g}")
    return [float(value) for value in given]


def histogram(settings: Settings, column: str, base_dir: Path, seed: int) -> tuple[list[float], list[float]]:
    """The distinct values of a column over the first rows of a trace, and how often each occurs."""
    limit = settings.integer("limit", 1, TRACE_ROWS, TRACE_ROWS)
    wanted: dict[str, Any] = {"trace": settings.get("trace"), "limit": limit}
    trace = open_trace(Settings(wanted, settings.where, TRACE_KEYS), base_dir, seed)
    parts = [getattr(batch, column) for batch in trace.batches(1 << 14)]
    values, counts = np.unique(np.concatenate(parts), return_counts=True)
    return values.astype(float).tolist(), counts.astype(float).tolist()
