"""``hybridkv calibrate``: measured serving points in, a step-time file out."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from sim.calibrate import calibrate, calibration_base, read_points
from sim.cli.console import print_json, print_tables
from sim.cli.given import set_overrides
from sim.cli.progress import status_line
from sim.errors import InputError
from sim.report.calibrate_tables import calibrate_tables
from sim.scenario import Override, write_step_time


def calibrate_command(
    words: Sequence[str],
    sets: Sequence[str],
    gpu: str | None,
    release: str | None,
    out: Path | None,
    *,
    as_json: bool,
) -> int:
    """Fit the points of all files but the last word, which names the model; write and print what came of it."""
    if len(words) < 2:
        raise InputError("give files of points, then a model or scenario: calibrate POINTS.csv gpt-oss-120b")
    *files, target = words
    overrides = list(set_overrides(sets))
    if gpu is not None:
        overrides.append(Override(("hardware", "gpu"), gpu, "--gpu"))
    points = [point for file in files for point in read_points(Path(file))]
    base = calibration_base(target, overrides)
    origin = {"source": ", ".join(Path(file).name for file in files), **({"vllm": release} if release else {})}
    with status_line(f"{len(points)} points") as progress:
        found = calibrate(base, points, origin, progress)
    destination = out or Path("step-time.yaml")
    write_step_time(destination, found.section(), "Step times fitted by `hybridkv calibrate`.")
    if as_json:
        print_json(found.section())
    else:
        print_tables(calibrate_tables(found, str(destination)))
    return 0
