"""A sweep file: a scenario, what is fixed, and which keys take which values.

    scenario: hybrid-vs-all-full            a shipped name, or a path relative to the sweep file
    set: {engine.max_num_seqs: 64}          the same for all points
    grid: {engine.block_size: [16, 32], seed: [0, 1]}            every combination, the last key fastest
    zip: {engine.tensor_parallel_size: [1, 2], engine.data_parallel_size: [2, 1]}      side by side
    points: [{engine.max_num_batched_tokens: 8192}, {…}]         one by one

Grid, zip and points are combined with each other as a grid is.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field

from sim.errors import InputError
from sim.scenario import Document, find_scenario
from sim.scenario.checking import check, error_at, shown
from sim.scenario.find import SUFFIXES, find_shipped, shipped_folder
from sim.scenario.overrides import Override, apply, split_key
from sim.scenario.schema import Keys, Name, Section
from sim.scenario.strict_yaml import KeyPath, read_yaml
from sim.search import parse_targets
from sim.sweeps.point import CEILINGS, Point, Search

MAX_POINTS = 1_000_000


class BestKeys(Keys):
    """Which point is the best: that with the highest or lowest value of a column."""

    column: str
    want: Literal["highest", "lowest"] = "highest"


class SweepKeys(Keys):
    """The keys of a sweep file."""

    name: Name | None = None
    question: str = ""
    expected: str = ""
    scenario: str
    set: Section = Field(default_factory=dict)
    grid: Section = Field(default_factory=dict)
    zip: Section = Field(default_factory=dict)
    points: list[dict[str, Any]] = Field(default_factory=list)
    slo: str | None = None
    over: Literal["rate", "concurrency", "memory", "gpus"] = "rate"
    seeds: Annotated[int, Field(ge=1, le=100)] = 1
    columns: list[str] = Field(default_factory=list)
    plot: list[str] = Field(default_factory=list, min_length=2, max_length=3)
    best: Section = Field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Sweep:
    """A sweep ready to run: its points, and what to show of them."""

    name: str
    question: str
    expected: str
    points: tuple[Point, ...]
    keys: tuple[str, ...]
    columns: tuple[str, ...]
    plot: tuple[str, ...]
    best: tuple[str, str] | None
    places: Mapping[str, str]
    """Where ``columns``, ``plot`` and ``best`` are written, for what is wrong with the columns they name."""


def read_sweep(path_or_name: str, sets: Sequence[Override] = (), plot: tuple[str, ...] = ()) -> Sweep:
    """Read a sweep file, or the shipped one of that name; ``sets`` change the scenario of every point.

    ``plot`` replaces what the file draws.

    Raises InputError for anything that cannot be used.
    """
    path = find_sweep(path_or_name)
    document = read_yaml(path, str(path))
    if not isinstance(document.value, dict):
        raise InputError("is no sweep: give scenario, and grid, zip or points", where=str(path))
    keys = check(SweepKeys, document.value, document)
    scenario_path = _scenario_path(keys.scenario, path, document)
    scenario = read_yaml(scenario_path, str(scenario_path))
    if not isinstance(scenario.value, dict):
        raise InputError("is no scenario: a mapping with at least model and memory", where=str(scenario_path))
    fixed = apply(scenario, [*_overrides(document, keys.set, ("set",)), *sets])
    search = None if keys.slo is None else Search(parse_targets(keys.slo), keys.over, keys.seeds)
    drawn = "+".join((*keys.plot, *plot)).split("+")
    ceilings = bool({*keys.columns, *drawn} & set(CEILINGS))
    points = tuple(
        Point(
            index,
            {".".join(override.path): override.value for override in changes},
            apply(fixed, changes),
            scenario_path.resolve().parent,
            search,
            ceilings,
        )
        for index, changes in enumerate(_combinations(document, keys))
    )
    best = check(BestKeys, keys.best, document, ("best",)) if keys.best else None
    return Sweep(
        name=keys.name or path.stem,
        question=" ".join(keys.question.split()),
        expected=" ".join(keys.expected.split()),
        points=points,
        keys=tuple(dict.fromkeys(key for point in points for key in point.changes)),
        columns=tuple(keys.columns),
        plot=plot or tuple(keys.plot),
        best=(best.column, best.want) if best else None,
        places={key: f"{document.place((key,))}: {key}" for key in ("columns", "plot", "best")}
        | ({"plot": "--plot"} if plot else {}),
    )


def find_sweep(path_or_name: str) -> Path:
    """The sweep file meant: a path, or the name of a shipped one; InputError names those."""
    return find_shipped(path_or_name, shipped_sweeps, "sweep")


def shipped_sweeps() -> dict[str, Path]:
    """Name to path of every shipped sweep, sorted by name."""
    folder = shipped_folder()
    return {path.stem: path for path in sorted((folder / "sweeps").glob("*.yaml"))} if folder else {}


def _scenario_path(given: str, sweep: Path, document: Document) -> Path:
    """A path beside the sweep file, or a shipped scenario."""
    beside = sweep.parent / given
    try:
        return beside if beside.suffix in SUFFIXES and beside.exists() else find_scenario(given)
    except InputError as error:
        raise error_at(document, ("scenario",), error.message) from error


def _combinations(document: Document, keys: SweepKeys) -> Iterator[list[Override]]:
    """The changes of each point: every combination of grid, zip and points."""
    axes = [[[override] for override in _values(document, key, values)] for key, values in keys.grid.items()]
    if keys.zip:
        columns = [_values(document, key, values, "zip") for key, values in keys.zip.items()]
        if len({len(column) for column in columns}) > 1:
            lengths = ", ".join(f"{key}: {len(values)}" for key, values in keys.zip.items())
            raise error_at(document, ("zip",), f"the lists are not of one length ({lengths})")
        axes.append([list(row) for row in zip(*columns, strict=True)])
    if keys.points:
        axes.append([_overrides(document, point, ("points", i)) for i, point in enumerate(keys.points)])
    if math.prod(len(axis) for axis in axes) > MAX_POINTS:
        raise error_at(document, (), f"more than {MAX_POINTS:,} points; give fewer values")
    for parts in product(*axes):
        yield [override for part in parts for override in part]


def _values(document: Document, key: str, values: Any, section: str = "grid") -> list[Override]:
    if not isinstance(values, list) or not values:
        raise error_at(document, (section, key), f"expected a list of values, got {shown(values)}")
    place = f"{document.place((section, key))}: {section}.{key}"
    return [_override(key, value, place) for value in values]


def _overrides(document: Document, given: Mapping[str, Any], path: KeyPath) -> list[Override]:
    found = []
    for key, value in given.items():
        place = f"{document.place((*path, key))}: {'.'.join(map(str, path))}.{key}"
        found.append(_override(key, value, place))
    return found


def _override(key: str, value: Any, place: str) -> Override:
    """A change of one key; its value has to be one that JSON can hold."""
    try:
        json.dumps(value, allow_nan=False)
    except ValueError as error:
        raise InputError(f"expected finite numbers, got {shown(value)}", where=place) from error
    return Override(split_key(key, place), value, place)
