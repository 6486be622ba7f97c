"""Coefficients fitted to public measurements, one line per model family, GPU and release: ``coefficients.csv``.

Fitted by this project (``python -m benchmarks.accuracy --write``) to serving points of NVIDIA's aiconfigurator-core
0.12.0 (Apache-2.0), which hold runs of SemiAnalysis's InferenceX.
"""

from __future__ import annotations

import csv
from functools import cache
from pathlib import Path
from typing import Any, Final

from sim.hardware import Gpu
from sim.models import Model

FILE: Final = Path(__file__).with_name("coefficients.csv")
SOURCE: Final = "InferenceX points in aiconfigurator-core 0.12.0 (NVIDIA, SemiAnalysis; Apache-2.0)"
METRICS: Final = ("tpot", "throughput", "ttft")


@cache
def _lines() -> list[dict[str, str]]:
    if not FILE.exists():
        return []
    with FILE.open(encoding="utf-8", newline="") as lines:
        return list(csv.DictReader(lines))


def fitted(model: Model, gpu: Gpu, names: tuple[str, ...]) -> dict[str, Any] | None:
    """The section of the coefficients fitted to the model's family on this GPU, with their origin; None without any.

    A family is a model class with weights of one size: its members differ in what the sum is made of, not in kernels.
    """
    for line in _lines():
        sizes = (float(line["weight_bytes_per_param"]), float(line["expert_bytes_per_param"]))
        if (line["architecture"], line["gpu"]) != (model.architecture, gpu.name):
            continue
        if sizes != (model.weight_bytes_per_param, model.expert_bytes_per_param if model.num_experts else 0.0):
            continue
        origin = _origin(line)
        if int(line["params_total"]) == model.params_total:  # the same model under another name
            origin["model"] = model.name
        return {"kind": "additive", **{name: float(line[name]) for name in names}, "origin": origin}
    return None


def _origin(line: dict[str, str]) -> dict[str, Any]:
    return {
        **{key: line[key] for key in ("model", "gpu", "vllm")},
        "source": SOURCE,
        "points": int(line["points"]),
        "in_sample_pct": {name: float(line[f"in_sample_{name}_pct"]) for name in METRICS},
        "left_out_pct": {name: float(line[f"left_out_{name}_pct"]) for name in METRICS},
    }
