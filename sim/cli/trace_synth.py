"""``hybridkv trace synth``: a synthetic trace fitted to a real one, and how close it comes."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sim.cli.console import print_json, print_tables
from sim.cli.trace_commands import ROWS, counting, opened, output_format
from sim.report.folder import staged_file, staged_path
from sim.report.tables import number
from sim.report.trace_tables import closeness_table, provenance_rows
from workloads.batch import concat
from workloads.stats.summary import describe
from workloads.synthesis import fit, generate
from workloads.writers import WRITERS

BLOCK = 16


@dataclass(frozen=True, slots=True)
class SynthOptions:
    """How many requests (None: as many as the trace has), how fast, the seed, and where the fit goes, if anywhere."""

    requests: int | None
    rate: float
    seed: int
    fit: Path | None


def synth_command(
    trace: str, sets: Sequence[str], out: Path, to: str | None, options: SynthOptions, *, as_json: bool
) -> int:
    """Fit, generate, write, and compare the two by the statistics of ``trace stats``."""
    form = output_format(out, to)
    workload = opened(trace, sets)
    with counting(workload) as counted:
        batch = concat(list(counted(workload.batches(ROWS))))
    model = fit(batch)
    made = generate(model, options.requests or max(len(batch), 2), options.rate, options.seed)
    with staged_path(out) as path:
        lost = WRITERS[form](lambda: iter([made]), path)
    if options.fit is not None:
        with staged_file(options.fit) as stream:
            json.dump(model.to_json(), stream, indent=1)
            stream.write("\n")
    wanted, found = describe(batch, BLOCK), describe(made, BLOCK)
    answer: dict[str, Any] = {"trace": workload.describe(), "given": wanted, "synthetic": found}
    answer["written"] = {"path": str(out), "format": form, "requests": len(made), "rows_lost": lost}
    if as_json:
        print_json(answer)
        return 0
    said = [("written", f"{number(len(made))} requests as {form} to {out}, seed {options.seed}")]
    print_tables([closeness_table([*provenance_rows(answer["trace"]), *said], wanted, found, options.rate)])
    return 0
