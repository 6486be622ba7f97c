"""``hybridkv curve``: capacity against request length, hybrid against all-full."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from sim.capacity import capacity_curve
from sim.cli.console import print_json, print_tables
from sim.cli.given import destinations_of
from sim.cli.plan_command import request_lengths
from sim.report.curve_tables import curve_data, curve_lengths, curve_tables, round_lengths, write_csv
from sim.report.folder import FIGURES, ResultFolder
from sim.report.run_tables import model_line
from sim.scenario import load_scenario
from sim.scenario.checking import located
from sim.scenario.overrides import Override


def curve_command(
    file: str, overrides: Sequence[Override], out: Path | None, lengths: Sequence[str] | None, *, as_json: bool
) -> int:
    """Compute the curve of a scenario's model, print it and write ``curve.csv`` and ``figures/curve.png``."""
    scenario = load_scenario(file, overrides)
    longest = scenario.engine.max_model_len
    given = sorted(request_lengths(lengths, longest))
    with located(scenario.document):
        curve = capacity_curve(scenario.model, scenario.engine, scenario.memory, given or curve_lengths(longest))
    (destination,) = destinations_of([scenario.name], out, "-curve")
    with ResultFolder(destination) as folder:
        write_csv(folder.path / "curve.csv", curve)
        figures = folder.path / FIGURES
        figures.mkdir()
        from sim.report.curve_figure import write_curve_figure

        write_curve_figure(figures / "curve.png", curve, f"{scenario.name}: {model_line(scenario)}")
        folder.commit()
    if as_json:
        print_json(curve_data(scenario, curve))
    else:
        shown = set(given) or round_lengths([point.tokens for point in curve.points])
        print_tables(curve_tables(scenario, curve, str(destination), shown))
    return 0
