"""``hybridkv run``: scenarios in, an answer on stdout and a folder of results each."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from sim.cli.console import print_json, print_tables
from sim.cli.given import set_overrides
from sim.cli.progress import progress_bar
from sim.errors import InputError
from sim.report.folder import ResultFolder, staged_file
from sim.report.results import write_results
from sim.report.run_tables import run_tables
from sim.run import Result, run_scenario
from sim.scenario import Scenario, load_scenario
from sim.scenario.checking import located


@dataclass(frozen=True, slots=True)
class RunOptions:
    """What ``run``'s flags say: where to, what to print, and what to leave out."""

    out: Path | None
    as_json: bool
    check: bool
    figures: bool
    step_log: Path | None


def run_command(files: Sequence[str], sets: Sequence[str], options: RunOptions) -> int:
    """Run every scenario in order; all are read, and all outputs tried, before the first one runs."""
    scenarios = [load_scenario(file, set_overrides(sets)) for file in files]
    for scenario in scenarios:
        scenario.require_workload()
    if options.step_log is not None and len(scenarios) > 1:
        raise InputError("takes one scenario; run them one by one", where="--step-log")
    destinations = destinations_of([scenario.name for scenario in scenarios], options.out)
    summaries: list[dict[str, Any]] = []
    with ExitStack() as stack:
        folders = [stack.enter_context(ResultFolder(destination)) for destination in destinations]
        log = stack.enter_context(staged_file(options.step_log)) if options.step_log else None
        for scenario, folder in zip(scenarios, folders, strict=True):
            result = _run_one(scenario, log, options.check)
            write_results(folder.path, scenario, result, figures=options.figures)
            folder.commit()
            summaries.append(result.summary)
            if not options.as_json:
                print_tables(run_tables(scenario, result, str(folder.destination)))
    if options.as_json:
        print_json(summaries[0] if len(summaries) == 1 else summaries)
    return 0


def destinations_of(names: Sequence[str], out: Path | None, suffix: str = "") -> list[Path]:
    """A results folder per scenario: ``out`` itself for a single one, a folder named after each below it for several."""
    if len(names) == 1 and out is not None:
        return [out]
    twice = next((name for i, name in enumerate(names) if name in names[:i]), None)
    if twice is not None:
        raise InputError(f"two scenarios are called {twice!r}; give one another name (--set name=… works for one run)")
    return [(out or Path("results")) / f"{name}{suffix}" for name in names]


def _run_one(scenario: Scenario, log: IO[str] | None, check: bool) -> Result:
    with progress_bar(scenario.name) as progress, located(scenario.document):
        return run_scenario(scenario, progress=progress, check=check, step_log=log)
