"""Reading back what ``run`` and ``compare`` left in their folders."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from sim.errors import InputError
from sim.scenario import Scenario, load_scenario

Columns = dict[str, NDArray[Any]]

_NEEDED = ("summary.json", "requests.parquet", "steps.parquet", "scenario.resolved.yaml")


@dataclass(frozen=True, slots=True)
class Run:
    """One run as its folder tells it: numbers are NumPy columns, missing ones NaN; texts are arrays of objects.

    ``label`` tells runs on one page apart. ``scenario`` is the resolved one, ``resolved`` its text.
    """

    label: str
    folder: Path
    summary: dict[str, Any]
    requests: Columns
    steps: Columns
    scenario: Scenario
    resolved: str


def read_runs(folders: Sequence[Path]) -> list[Run]:
    """The runs of these folders in order; a folder of ``compare`` stands for each of its variants.

    Raises InputError for a folder without results, and for results that cannot be read.
    """
    found = [run for folder in folders for run in _runs_below(folder)]
    if len({folder.absolute() for folder in found}) < len(found):
        raise InputError("the same results are named twice; a page compares different ones", where="report")
    labels = _labels(found)
    return [_read(folder, label) for folder, label in zip(found, labels, strict=True)]


def _runs_below(folder: Path) -> list[Path]:
    """The folder itself if it holds a run, else the folders in it that do, in the order ``compare`` names them."""
    if not folder.is_dir():
        raise InputError("no such folder; give one that `hybridkv run` or `compare` wrote", where=str(folder))
    if _holds_run(folder):
        return [folder]
    comparison = folder / "compare.json"
    if comparison.is_file():
        named = [str(variant.get("folder") or "") for variant in _json(comparison).get("variants", [])]
        inside = [folder / name for name in named if name and _holds_run(folder / name)]
    else:
        inside = sorted(entry for entry in folder.iterdir() if entry.is_dir() and _holds_run(entry))
    if not inside:
        missing = ", ".join(name for name in _NEEDED if not (folder / name).is_file())
        raise InputError(f"holds no results of a run ({missing} missing); run the scenario first", where=str(folder))
    return inside


def _holds_run(folder: Path) -> bool:
    return all((folder / name).is_file() for name in _NEEDED)


def _labels(folders: Sequence[Path]) -> list[str]:
    """The folders' last parts, with as many parts before them as it takes to tell them apart."""
    for depth in range(1, max((len(folder.absolute().parts) for folder in folders), default=1) + 1):
        labels = ["/".join(folder.absolute().parts[-depth:]) for folder in folders]
        if len(set(labels)) == len(labels):
            return labels
    return [str(folder) for folder in folders]


def _read(folder: Path, label: str) -> Run:
    resolved = folder / "scenario.resolved.yaml"
    return Run(
        label=label,
        folder=folder,
        summary=_json(folder / "summary.json"),
        requests=_columns(folder / "requests.parquet"),
        steps=_columns(folder / "steps.parquet"),
        scenario=load_scenario(resolved),
        resolved=resolved.read_text(encoding="utf-8"),
    )


def _json(path: Path) -> dict[str, Any]:
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise InputError(f"cannot be read as JSON: {error}; run the scenario again", where=str(path)) from error
    if not isinstance(value, dict):
        raise InputError("is no JSON object; run the scenario again", where=str(path))
    return value


def _columns(path: Path) -> Columns:
    try:
        table = pq.read_table(path)
    except (OSError, pa.ArrowException) as error:
        reason = str(error).splitlines()[0]
        raise InputError(f"cannot be read as Parquet: {reason}; run the scenario again", where=str(path)) from error
    return {name: _array(table.column(name)) for name in table.column_names}


def _array(column: pa.ChunkedArray) -> NDArray[Any]:
    if pa.types.is_floating(column.type) or (column.null_count and pa.types.is_integer(column.type)):
        return np.array(column.to_pylist(), np.float64) if column.null_count else np.asarray(column.to_numpy())
    if pa.types.is_integer(column.type):
        return np.asarray(column.to_numpy())
    return np.array(column.to_pylist(), np.object_)
