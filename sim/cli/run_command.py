"""``hybridkv run``: scenarios in, an answer on stdout and a folder of results each."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

from sim.cli.console import print_json, print_tables
from sim.cli.given import destinations_of
from sim.cli.progress import progress_bar
from sim.core._jit import cache_problem, compiling_takes, is_compiled
from sim.engine import WINDOW
from sim.errors import InputError
from sim.planning import plan_kv_cache, seqs_warning
from sim.report.folder import ResultFolder, staged_file
from sim.report.results import write_results
from sim.report.run_tables import run_tables
from sim.run import Result, run_scenario
from sim.scenario import Scenario, load_scenario
from sim.scenario.checking import located
from sim.scenario.overrides import Override
from sim.story import BlockMap, Watcher
from sim.story.block_map import MAX_BLOCKS
from workloads import open_workload


@dataclass(frozen=True, slots=True)
class RunOptions:
    """What ``run``'s flags say: where to, what to print, and what to leave out."""

    out: Path | None
    as_json: bool
    check: bool
    explain: bool
    figures: bool
    step_log: Path | None
    kv_events: Path | None


def run_command(files: Sequence[str], overrides: Sequence[Override], options: RunOptions) -> int:
    """Run every scenario in order; all are read, and all outputs tried, before the first one runs."""
    scenarios = [load_scenario(file, overrides) for file in files]
    for scenario in scenarios:
        scenario.require_workload()
    for flag, path in (("--step-log", options.step_log), ("--kv-events", options.kv_events)):
        if path is not None and len(scenarios) > 1:
            raise InputError("takes one scenario; run them one by one", where=flag)
    destinations = destinations_of([scenario.name for scenario in scenarios], options.out)
    summaries: list[dict[str, Any]] = []
    with ExitStack() as stack:
        folders = [stack.enter_context(ResultFolder(destination)) for destination in destinations]
        log = stack.enter_context(staged_file(options.step_log)) if options.step_log else None
        events = stack.enter_context(staged_file(options.kv_events)) if options.kv_events else None
        for scenario, folder in zip(scenarios, folders, strict=True):
            blocks = _block_map(scenario, options)
            result = run_one(
                scenario,
                scenario.name,
                log=log,
                events=events,
                check=options.check,
                explain=options.explain,
                watchers=[blocks] if blocks else [],
            )
            write_results(folder.path, scenario, result, figures=options.figures, blocks=blocks)
            folder.commit()
            summaries.append(result.summary)
            if not options.as_json:
                print_tables(run_tables(scenario, result, str(folder.destination)))
    if options.as_json:
        print_json(summaries[0] if len(summaries) == 1 else summaries)
    return 0


def run_one(
    scenario: Scenario,
    label: str,
    *,
    log: TextIO | None = None,
    events: TextIO | None = None,
    check: bool = False,
    explain: bool = False,
    watchers: Sequence[Watcher] = (),
) -> Result:
    """Run one scenario with a progress bar called ``label``; errors name the scenario's file and line."""
    with located(scenario.document):
        say_warnings(scenario)
        say_if_compiling(scenario)
        with progress_bar(label) as progress:
            return run_scenario(
                scenario,
                progress=progress,
                check=check,
                step_log=log,
                kv_events=events,
                explain=explain,
                watchers=watchers,
            )


def _block_map(scenario: Scenario, options: RunOptions) -> BlockMap | None:
    """A map of blocks to be drawn: of an explained run whose one pool is small enough to look at."""
    if not (options.explain and options.figures) or scenario.num_engines > 1:
        return None
    small = plan_kv_cache(scenario.model, scenario.engine, scenario.memory).num_blocks <= MAX_BLOCKS
    return BlockMap() if small else None


def say_warnings(scenario: Scenario) -> None:
    """Say on stderr, before anything runs, what the scenario asks for in vain."""
    plan = plan_kv_cache(scenario.model, scenario.engine, scenario.memory)
    if warning := seqs_warning(plan, scenario.engine):
        sys.stderr.write(f"hybridkv: {scenario.name}: {warning}\n")


def say_if_compiling(scenario: Scenario) -> None:
    """Say on stderr that the core is about to be compiled, and whether that will be kept.

    What can be found wrong with the input before that is found first, so that an error stays one line.
    """
    if is_compiled():
        return
    plan_kv_cache(scenario.model, scenario.engine, scenario.memory)
    next(open_workload(scenario.workload, scenario.base_dir, scenario.seed).batches(WINDOW), None)
    sys.stderr.write(f"hybridkv: compiling the simulator for this machine, once; this takes {compiling_takes()}\n")
    if problem := cache_problem():
        sys.stderr.write(f"hybridkv: {problem}\n")
