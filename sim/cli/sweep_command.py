"""``hybridkv sweep``: the points of a sweep file on all cores or on Ray, each kept as soon as it is finished."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from sim.cli.console import print_json, print_tables
from sim.cli.given import destinations_of, set_overrides
from sim.cli.progress import points_bar
from sim.cli.run_command import say_if_compiling
from sim.core._jit import is_compiled
from sim.errors import InputError, StoppedError
from sim.report.folder import FIGURES, ResultFolder
from sim.report.parquet import write_parquet
from sim.report.results import write_json
from sim.report.sweep_tables import check_columns, probe_columns, sweep_columns, sweep_data, sweep_tables
from sim.scenario import build_scenario
from sim.scenario.checking import located
from sim.sweeps import Journal, Point, Row, Sweep, here, on_cores, on_ray, read_sweep

OWN_FILES = frozenset({"sweep.json", "sweep.parquet", "probes.parquet"})


@dataclass(frozen=True, slots=True)
class SweepOptions:
    """What ``sweep``'s flags say: where results go, where points run, and what is shown.

    ``ray`` is None for this machine's cores, and empty for a cluster without an address.
    """

    out: Path | None
    as_json: bool
    workers: int | None
    ray: str | None
    plot: str | None


def sweep_command(file: str, sets: Sequence[str], options: SweepOptions) -> int:
    """Run the points that are not finished yet, and show all of them."""
    sweep = read_sweep(file, set_overrides(sets), _plot(options.plot) if options.plot else ())
    (destination,) = destinations_of([sweep.name], options.out, "-sweep")
    rows = finished_rows(sweep.points, destination, options.workers, options.ray, sweep.name)
    check_columns(sweep, rows)
    with ResultFolder(destination, OWN_FILES) as folder:
        write_sweep(folder.path, sweep, rows)
        folder.commit()
    if options.as_json:
        print_json(sweep_data(sweep, rows))
    else:
        print_tables(sweep_tables(sweep, rows, str(destination)))
    return 1 if all(row["error"] for row in rows) else 0


def finished_rows(
    points: Sequence[Point], destination: Path, workers: int | None, ray: str | None, label: str
) -> list[Row]:
    """The rows of all points: those in the folder's journal, and the others run now and added to it."""
    scenario = build_scenario(points[0].document, points[0].base_dir)
    with located(scenario.document):
        scenario.require_workload()
        say_if_compiling(scenario)
    keys = [point.key for point in points]
    with Journal(destination) as journal:
        missing = {key: point for key, point in zip(keys, points, strict=True) if key not in journal.rows}
        with points_bar(label, len(points), len(points) - len(missing)) as report:
            try:
                for point, row in _finished(list(missing.values()), workers, ray):
                    journal.add(point.key, row)
                    report()
            except KeyboardInterrupt as stop:
                kept = sum(key in journal.rows for key in keys)
                raise StoppedError(f"{kept} of {len(keys)} points are kept, the same command goes on") from stop
        return [journal.rows[key] for key in keys]


def _finished(points: list[Point], workers: int | None, ray: str | None) -> Iterator[tuple[Point, Row]]:
    """Points as they finish. The first one runs here where the core has yet to be compiled, so that all find it."""
    if ray is not None:
        yield from on_ray(points, ray)
        return
    wanted = min(workers or _cores(), len(points))
    if wanted > 1 and not is_compiled():
        yield from here(points[:1])
        points = points[1:]
    yield from here(points) if wanted <= 1 else on_cores(points, wanted)


def _cores() -> int:
    """The cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _plot(text: str) -> tuple[str, ...]:
    names = tuple(name.strip() for name in text.split(","))
    if len(names) not in (2, 3) or not all(names):
        raise InputError(f"expected x,y or x,y,series, got {text!r}", where="--plot")
    return names


def write_sweep(folder: Path, sweep: Sweep, rows: Sequence[Row]) -> None:
    """Write ``sweep.parquet``, ``sweep.json``, the probes of searches, and the figure the sweep asks for."""
    columns = sweep_columns(sweep, rows)
    write_parquet(folder / "sweep.parquet", "sweep", columns)
    write_json(folder / "sweep.json", sweep_data(sweep, rows))
    if any(row.get("probes") for row in rows):
        write_parquet(folder / "probes.parquet", "probes", probe_columns(sweep, rows))
    if sweep.plot and any(row["values"] for row in rows):
        from sim.report.sweep_figure import write_sweep_figure

        (folder / FIGURES).mkdir()
        write_sweep_figure(folder / FIGURES / "sweep.png", columns, sweep)
