"""What step times were measured on, and how far that makes them right for a run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sim.hardware import Gpu
from sim.models import Model

ELSEWHERE = "used here for another {what}: TPOT within 10-30 %"


def origin_class(origin: Mapping[str, Any] | None, model: Model, gpu: Gpu | None) -> str | None:
    """How far to trust numbers of this origin for ``model`` on ``gpu``, None where no origin is given.

    The error said is that of points left out of the fit where it is known, else that of the fitted points.
    """
    if not origin:
        return None
    subject = " on ".join(str(origin[key]) for key in ("model", "gpu") if key in origin)
    release = f", vLLM {origin['vllm']}" if "vllm" in origin else ""
    other = [
        name
        for name, theirs, ours in (
            ("model", origin.get("model"), model.name),
            ("GPU", origin.get("gpu"), gpu.name if gpu else None),
        )
        if theirs is not None and ours is not None and str(theirs).lower() != str(ours).lower()
    ]
    error = _errors(origin)
    if other:
        error = ELSEWHERE.format(what=" and ".join(other))
    return f"measured for {subject or 'no model named'}{release}" + (f": {error}" if error else "")


def _errors(origin: Mapping[str, Any]) -> str:
    for key, label in (("left_out_pct", "left out of the fit"), ("in_sample_pct", "of the fitted points")):
        known = origin.get(key)
        if known:
            names = {"tpot": "TPOT", "throughput": "throughput", "ttft": "TTFT", "step": "step time"}
            listed = ", ".join(f"{names[name]} {known[name]:.3g} %" for name in names if name in known)
            return f"mean error {listed} ({label})"
    return ""
