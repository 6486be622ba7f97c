"""``hybridkv explain``: the life of one request, from a run that is done once more and watched."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from sim.cli.console import print_json, print_tables
from sim.cli.progress import progress_bar
from sim.cli.run_command import say_if_compiling
from sim.errors import InputError, nearest
from sim.report.page.read import Run, read_runs
from sim.report.story_tables import story_tables
from sim.run import Result, run_scenario
from sim.scenario.checking import located
from sim.story import RequestWatch

_KEPT = ("arrival_s", "first_scheduled_s", "finish_s", "cached_tokens", "preemptions")
"""What a request of the same run has again."""


def explain_command(request: str, folder: Path, *, as_json: bool) -> int:
    """Run the folder's scenario again, watch the request, and tell what happened to it."""
    runs = read_runs([folder])
    if len(runs) > 1:
        raise InputError(f"holds {len(runs)} runs; name one of them, as {runs[0].folder}", where=str(folder))
    row = _row(runs[0], request)
    watch = RequestWatch(request)
    with located(runs[0].scenario.document):
        say_if_compiling(runs[0].scenario)
        with progress_bar(f"{runs[0].label}, again") as progress:
            result = run_scenario(runs[0].scenario, progress=progress, explain=True, watchers=[watch])
    _check_same(runs[0], result, request, row)
    if as_json:
        print_json({"request": row, "happenings": watch.happenings, "fullest_tables": watch.fullest})
    else:
        print_tables(story_tables(row, watch, result.plan))
    return 0


def _row(run: Run, request: str) -> dict[str, Any]:
    """The request's row of the results. Raises InputError for one that did not run."""
    return _row_of({name: values.tolist() for name, values in run.requests.items()}, request, str(run.folder))


def _row_of(columns: dict[str, list[Any]], request: str, where: str) -> dict[str, Any]:
    if request not in columns["id"]:
        close = nearest(request, columns["id"])
        hint = f"; nearest is {close}" if close else ""
        raise InputError(f"no request {request!r} finished in this run{hint}", where=where)
    at = columns["id"].index(request)
    return {name: _plain(values[at]) for name, values in columns.items()}


def _plain(value: Any) -> Any:
    """A value ready for JSON."""
    return None if isinstance(value, float) and np.isnan(value) else value


def _check_same(run: Run, result: Result, request: str, row: dict[str, Any]) -> None:
    """Raise InputError when the run done again went otherwise than its results say."""
    columns = {name: np.asarray(values).tolist() for name, values in result.requests.items() if name in ("id", *_KEPT)}
    again = _row_of(columns, request, str(run.folder))
    differing = [name for name in _KEPT if again[name] != row[name]]
    if differing:
        raise InputError(
            f"was written by another release or from another trace: {differing[0]} of {request} was "
            f"{row[differing[0]]} and is now {again[differing[0]]}; run the scenario again",
            where=str(run.folder),
        )
