"""What ``run`` leaves in its folder: the summary, two tables, the resolved scenario and the figures."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from sim.replicas import of_replica
from sim.report.parquet import write_parquet
from sim.report.plan_tables import group_label
from sim.report.run_tables import subtitle
from sim.run import Result
from sim.scenario import Scenario, dump_yaml


def write_results(folder: Path, scenario: Scenario, result: Result, *, figures: bool) -> None:
    """Write a run's files into ``folder``, which exists and is empty."""
    write_json(folder / "summary.json", result.summary)
    write_parquet(folder / "requests.parquet", "requests", result.requests)
    write_parquet(folder / "steps.parquet", "steps", result.steps)
    write_resolved(folder, scenario)
    if figures:
        _write_figures(folder / "figures", scenario, result)


def _write_figures(folder: Path, scenario: Scenario, result: Result) -> None:
    """The figures of a run; where there are several replicas, of each in a folder of its own."""
    from sim.report.run_figures import write_run_figures

    for replica in range(scenario.engine.data_parallel_size):
        alone = scenario.engine.data_parallel_size == 1
        write_run_figures(
            folder if alone else folder / f"replica-{replica}",
            result.requests if alone else of_replica(result.requests, replica),
            result.steps if alone else of_replica(result.steps, replica),
            num_blocks=result.plan.num_blocks,
            subtitle=subtitle(scenario, result) + ("" if alone else f", replica {replica}"),
            latency_class=result.step_time.error_class,
            labels=[group_label(group) for group in result.plan.groups],
        )


def write_json(path: Path, value: Any) -> None:
    """Write ``value`` as indented JSON with a closing newline."""
    text = json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False)
    path.write_text(text + "\n", encoding="utf-8", newline="\n")


def write_resolved(folder: Path, scenario: Scenario) -> None:
    """Write ``scenario.resolved.yaml``, which loads as the same scenario."""
    text = "# Every default written out; this file runs again as it stands.\n" + dump_yaml(scenario.resolved())
    (folder / "scenario.resolved.yaml").write_text(text, encoding="utf-8", newline="\n")
