"""What ``calibrate`` prints: the points beside their simulation, and the coefficients beside their priors."""

from __future__ import annotations

from pathlib import Path

from sim.calibrate import Calibrated
from sim.report.tables import Table, number

_ABOUT = {
    "a": "compute: 1 / share of peak reached by matrix products",
    "a_attn": "compute: the same of attention, 16-bit peak",
    "b": "bytes: 1 / share of bandwidth, weights",
    "b_kv": "bytes: the same of the KV cache",
    "t0_us_per_layer": "fixed, per step and layer",
    "tr_us": "fixed, per request in a step",
    "g": "all-reduces: 1 / share of the link's bandwidth",
    "c0_ms": "once per answer, outside the engine",
}


def calibrate_tables(found: Calibrated, destination: str) -> list[Table]:
    """The tables of a calibration that was written to ``destination``."""
    section = found.section()
    origin = section["origin"]
    coefficients = [
        (name, number(section[name]), number(prior), _source(found, name), _ABOUT[name])
        for name, prior in found.prior.items()
    ]
    notes = [f"written to {destination}; use it as  step_time: {{file: {destination}}}"]
    if found.fit.held:
        notes.insert(0, f"the points say nothing about {', '.join(found.fit.held)}: held at the prior")
    header = ("point", "TTFT ms", "simulated", "TPOT ms", "simulated", "tokens/s", "simulated")
    rows = [
        (Path(point.place).name, *(number(float(value)) for pair in zip(ours, theirs, strict=True) for value in pair))
        for point, ours, theirs in zip(found.points, found.measured, found.simulated, strict=True)
    ]
    errors = [
        (label, *(number(origin[key].get(name)) for name in ("tpot", "throughput", "ttft")))
        for key, label in (("in_sample_pct", "fitted points"), ("left_out_pct", "left out of the fit"))
        if key in origin
    ]
    return [
        Table("Measured, and simulated with the fitted coefficients", header, rows),
        Table("Mean absolute error in %", ("", "TPOT", "throughput", "TTFT"), errors),
        Table("Coefficients", ("", "value", "prior", "from", "of what"), coefficients, notes, prose=True),
    ]


def _source(found: Calibrated, name: str) -> str:
    if name in found.fit.held:
        return "prior"
    return "mostly prior" if name in found.fit.weak else "fitted"
