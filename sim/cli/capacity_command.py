"""``hybridkv capacity``: the largest load, smallest memory or fewest replicas that meet given targets."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from sim.cli.console import print_json, print_tables
from sim.cli.given import destinations_of, set_overrides
from sim.cli.sweep_command import finished_rows
from sim.errors import InputError, nearest
from sim.report.capacity_tables import capacity_data, capacity_tables
from sim.report.folder import FIGURES, ResultFolder
from sim.report.results import write_json, write_resolved
from sim.report.run_tables import model_line
from sim.scenario import Scenario, load_scenario
from sim.search import KNOBS, knob_of, parse_targets
from sim.sweeps import Point, Row, Search

OWN_FILES = frozenset({"capacity.json", "scenario.resolved.yaml"})


@dataclass(frozen=True, slots=True)
class CapacityOptions:
    """What ``capacity``'s flags say."""

    slo: str
    over: str
    seeds: int
    out: Path | None
    as_json: bool
    workers: int | None
    figures: bool


def capacity_command(file: str, sets: Sequence[str], options: CapacityOptions) -> int:
    """Search the limit of each variant on the same traffic and show them side by side."""
    targets = parse_targets(options.slo)
    if options.over not in KNOBS:
        close = nearest(options.over, KNOBS)
        hint = f"; nearest is {close!r}" if close else ""
        raise InputError(f"got {options.over!r}; allowed are {', '.join(KNOBS)}{hint}", where="--over")
    scenario = load_scenario(file, set_overrides(sets))
    scenario.require_workload()
    knob = knob_of(scenario, options.over)
    seeds = options.seeds if _is_random(scenario) else 1
    search = Search(targets, options.over, seeds, curve=True)
    points = [
        Point(index, {"variant": name}, scenario.variant_document(name), scenario.base_dir, search)
        for index, name in enumerate(scenario.compared())
    ]
    (destination,) = destinations_of([scenario.name], options.out, "-capacity")
    found = finished_rows(points, destination, options.workers, None, scenario.name)
    rows = dict(zip(scenario.compared(), found, strict=True))
    if all(row["error"] for row in rows.values()):
        raise InputError(next(iter(rows.values()))["error"])
    data = capacity_data(scenario.name, knob, targets, rows, scenario.expected)
    with ResultFolder(destination, OWN_FILES) as folder:
        write_json(folder.path / "capacity.json", data)
        write_resolved(folder.path, scenario)
        if options.figures:
            _draw(folder.path, scenario, options, rows)
        folder.commit()
    if options.as_json:
        print_json(data)
    else:
        print_tables(capacity_tables(knob, targets, rows, seeds, str(destination)))
    return 0


def _is_random(scenario: Scenario) -> bool:
    """Whether another seed makes another run: a trace as it was recorded is the same each time."""
    workload = scenario.workload
    recorded = "trace" in workload and not (workload["jitter_s"] or workload["think_s"] or workload["arrival"])
    return not recorded or scenario.engine.num_speculative_tokens > 0


def _draw(folder: Path, scenario: Scenario, options: CapacityOptions, rows: dict[str, Row]) -> None:
    from sim.report.capacity_figure import write_capacity_figure

    (folder / FIGURES).mkdir()
    knob, targets = knob_of(scenario, options.over), parse_targets(options.slo)
    question = capacity_tables(knob, targets, rows, 1, "")[0].title
    subtitle = f"{scenario.name}: {model_line(scenario)}"
    write_capacity_figure(folder / FIGURES / "capacity.png", knob, targets, rows, question, subtitle)
