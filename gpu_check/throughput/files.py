"""What the check leaves behind: two step-time files that a scenario can name, all times as JSON, and the figure."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from gpu_check.throughput.axes import Axes
from gpu_check.throughput.fit import UNMEASURED
from gpu_check.throughput.measured import Measured
from sim.scenario.steps import write_step_time

ADDITIVE_FILE, TABLE_FILE, TIMES_FILE = "step_time.yaml", "step_time_table.yaml", "throughput.json"
FILES = (ADDITIVE_FILE, TABLE_FILE, TIMES_FILE)


def write_files(found: Measured, out: Path, device: str) -> None:
    """Write all three into ``out``; ``device`` is its name in words."""
    origin: dict[str, Any] = {
        "model": found.body.model.name,
        "source": f"hybridkv gpu-check on {device}, {found.kernel.name}",
        "points": found.fit.points,
    }
    errors = {
        "in_sample_pct": {"step": round(found.fit.in_sample_pct, 3)},
        "left_out_pct": {"step": round(found.fit.left_out_pct, 3)},
    }
    heading = f"Measured by hybridkv gpu-check on {device}\n{found.body.note}".rstrip()
    coefficients = {name: float(f"{value:.6g}") for name, value in found.fit.coefficients.items()}
    section = {"kind": "additive", **coefficients, "origin": {**origin, **errors, "held_at_prior": list(UNMEASURED)}}
    against = f"{heading}\nCoefficients are relative to the data sheet of {found.gpu.name}: name that GPU beside them."
    write_step_time(out / ADDITIVE_FILE, section, against)
    write_step_time(out / TABLE_FILE, {**table_section(found.axes, found.seconds), "origin": origin}, heading)
    (out / TIMES_FILE).write_text(json.dumps(_times(found, device), indent=1, allow_nan=False) + "\n", encoding="utf-8")


def table_section(axes: Axes, seconds: Mapping[tuple[int, int, int], float]) -> dict[str, Any]:
    """The measured grid as a ``step_time`` table; the empty step that a grid from 0 has is given the shortest time."""
    least = min(seconds.values())
    return {
        "kind": "table",
        "decodes": list(axes.decodes),
        "context_tokens": list(axes.contexts),
        "prefill_tokens": list(axes.prefills),
        "seconds": [
            [[float(f"{seconds.get((d, c, p), least):.6g}") for p in axes.prefills] for c in axes.contexts]
            for d in axes.decodes
        ],
    }


def _times(found: Measured, device: str) -> dict[str, Any]:
    """All that was timed, as plain data."""
    return {
        "device": device,
        "kernel": asdict(found.kernel),
        "clock": found.clock,
        "note": found.body.note,
        "peaks": asdict(found.peaks),
        "coefficients": found.fit.coefficients,
        "in_sample_pct": found.fit.in_sample_pct,
        "left_out_pct": found.fit.left_out_pct,
        "grid": [
            {"decodes": d, "context_tokens": c, "prefill_tokens": p, "seconds": s}
            for (d, c, p), s in found.seconds.items()
        ],
        "parts": [asdict(part) for part in found.parts],
        "headline": None if found.headline is None else asdict(found.headline),
        "savings": [asdict(saving) for saving in found.savings],
        "steps": [
            {"step": step.step, "class": step.kind, "predicted_s": float(p), "measured_s": float(m)}
            for step, p, m in zip(found.replayed, found.predicted_s, found.measured_s, strict=True)
        ],
    }
