"""What ``run`` leaves in its folder: the summary, two tables, the resolved scenario and the figures."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sim.replicas import of_replica
from sim.report.parquet import write_parquet
from sim.report.plan_tables import group_label
from sim.report.roles import PREFILL, roles_of
from sim.report.run_tables import subtitle
from sim.run import Result
from sim.scenario import Scenario, dump_yaml
from sim.story import BlockMap

if TYPE_CHECKING:  # it brings Matplotlib
    from sim.report.run_figures import Drawn


def write_results(
    folder: Path, scenario: Scenario, result: Result, *, figures: bool, blocks: BlockMap | None = None
) -> None:
    """Write a run's files into ``folder``, which exists and is empty; ``blocks``: what its only replica's pool did."""
    write_json(folder / "summary.json", result.summary)
    write_parquet(folder / "requests.parquet", "requests", result.requests)
    write_parquet(folder / "steps.parquet", "steps", result.steps)
    write_resolved(folder, scenario)
    if figures:
        _write_figures(folder / "figures", scenario, result, blocks)


def _write_figures(folder: Path, scenario: Scenario, result: Result, blocks: BlockMap | None) -> None:
    """The figures of a run; where there are several replicas, of each in a folder of its own."""
    from sim.report.run_figures import write_run_figures

    if scenario.num_engines == 1:
        write_run_figures(folder, drawn(scenario, result, blocks))
        return
    for replica, role in enumerate(roles_of(result.summary)):
        own = drawn(scenario, result, None)
        write_run_figures(
            folder / f"replica-{replica}",
            own._replace(
                requests=of_replica(result.requests, replica, by="prefill_replica" if role == PREFILL else "replica"),
                steps=of_replica(result.steps, replica),
                subtitle=f"{own.subtitle}, replica {replica}{role and f' ({role})'}",
                roles=(),
            ),
        )


def drawn(scenario: Scenario, result: Result, blocks: BlockMap | None) -> Drawn:
    """What the figures of a run are drawn from."""
    from sim.report.run_figures import Drawn

    return Drawn(
        result.requests,
        result.steps,
        num_blocks=result.plan.num_blocks,
        subtitle=subtitle(scenario, result),
        latency_class=result.step_time.error_class,
        labels=[group_label(group) for group in result.plan.groups],
        blocks=blocks,
        roles=roles_of(result.summary),
    )


def write_json(path: Path, value: Any) -> None:
    """Write ``value`` as indented JSON with a closing newline."""
    text = json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False)
    path.write_text(text + "\n", encoding="utf-8", newline="\n")


def write_resolved(folder: Path, scenario: Scenario) -> None:
    """Write ``scenario.resolved.yaml``, which loads as the same scenario."""
    text = "# Every default written out; this file runs again as it stands.\n" + dump_yaml(scenario.resolved())
    (folder / "scenario.resolved.yaml").write_text(text, encoding="utf-8", newline="\n")
