"""``hybridkv compare``: the variants of a scenario on the same traffic."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from sim.cli.console import print_json, print_tables
from sim.cli.given import destinations_of
from sim.cli.run_command import run_one
from sim.report.compare_tables import Outcome, compare_data, compare_tables, latency_class, variant_folder
from sim.report.folder import FIGURES, ResultFolder
from sim.report.results import write_json, write_resolved, write_results
from sim.report.run_tables import model_line
from sim.scenario import Scenario, load_scenario, run_variants
from sim.scenario.overrides import Override


def compare_command(file: str, overrides: Sequence[Override], out: Path | None, *, as_json: bool, figures: bool) -> int:
    """Run every variant and show them side by side.

    A variant that vLLM refuses is an answer, shown as such; only when all are refused is it an error.
    """
    scenario = load_scenario(file, overrides)
    scenario.require_workload()
    (destination,) = destinations_of([scenario.name], out, "-compare")
    with ResultFolder(destination) as folder:
        outcomes = _outcomes(scenario)
        write_json(folder.path / "compare.json", compare_data(scenario, outcomes))
        write_resolved(folder.path, scenario)
        _write_variants(folder.path, scenario, outcomes)
        if figures:
            from sim.report.compare_figure import write_compare_figure

            (folder.path / FIGURES).mkdir()
            subtitle = f"{scenario.name}: {model_line(scenario)}\n{latency_class(outcomes)}"
            write_compare_figure(folder.path / FIGURES / "compare.png", scenario.question, outcomes, subtitle)
        folder.commit()
    if as_json:
        print_json(compare_data(scenario, outcomes))
    else:
        print_tables(compare_tables(scenario, outcomes, str(destination)))
    return 0


def _write_variants(path: Path, scenario: Scenario, outcomes: Sequence[Outcome]) -> None:
    """The results of each variant in a folder of its own, as ``run`` would leave them, without figures."""
    for outcome in outcomes:
        if outcome.result is not None:
            folder = path / variant_folder(outcome.variant)
            folder.mkdir(parents=True, exist_ok=True)
            write_results(folder, scenario.variant(outcome.variant), outcome.result, figures=False)


def _outcomes(scenario: Scenario) -> list[Outcome]:
    """Every variant in the scenario's order, run with a progress bar, or refused."""

    def run(name: str, variant: Scenario) -> Outcome:
        result = run_one(variant, f"{scenario.name}: {name}")
        return Outcome(name, result, all_full=variant.engine.disable_hybrid_kv_cache_manager)

    ran, refusals = run_variants(scenario, run)
    return [ran[name] if name in ran else Outcome(name, None, refusals[name]) for name in scenario.compared()]
