"""The fitted coefficients as the file that the simulator ships."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from benchmarks.accuracy.compare import Compared
from benchmarks.accuracy.measured import model_of
from sim.calibrate.fit import named
from sim.step_time.fitted import METRICS


def write_coefficients(path: Path, groups: Sequence[Compared]) -> None:
    """Write one line per group: what it was fitted to, the coefficients, the errors."""
    out = io.StringIO()
    rows = [_row(group) for group in groups]
    writer = csv.DictWriter(out, list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    path.write_text(out.getvalue(), encoding="utf-8")


def _row(group: Compared) -> dict[str, object]:
    file, gpu = group.cases[0].group
    model = model_of(file)
    errors = {
        f"{part}_{name}_pct": f"{value:.1f}"
        for part, values in (("in_sample", group.fitted), ("left_out", group.left_out))
        for name, value in zip(METRICS, np.abs(values[group.plain]).mean(axis=0).tolist(), strict=True)
    }
    return {
        "architecture": model.architecture,
        "weight_bytes_per_param": f"{model.weight_bytes_per_param:g}",
        "expert_bytes_per_param": f"{model.expert_bytes_per_param if model.num_experts else 0:g}",
        "model": model.name,
        "params_total": model.params_total,
        "gpu": gpu,
        "vllm": group.cases[0].release,
        **{name: f"{value:g}" for name, value in named(group.fit.coefficients).items()},
        "points": int(group.plain.sum()),
        **errors,
    }
