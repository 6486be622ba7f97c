"""The check of throughput: what the simulator says of step times, against the same steps run on the device."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from gpu_check.case import Case
from gpu_check.claims import Check, Claim, Value, Verdict, at_most, judged, not_tested
from gpu_check.device import Device
from gpu_check.kernels.choose import TOLERANCE, agreement
from gpu_check.throughput.axes import CPU_AXES, GPU_AXES, Axes
from gpu_check.throughput.body import make_body
from gpu_check.throughput.clock import Clock
from gpu_check.throughput.composition import CLASSES
from gpu_check.throughput.files import ADDITIVE_FILE, write_files
from gpu_check.throughput.measured import Measured, errors_pct, measure
from sim.hardware import find_gpu, gpus

CHECK: Check = "throughput"
CLASS_LIMIT_PCT = 15.0
"""Mean error of a class of steps that confirms the additive form: twice what fits to served traffic leave."""
BANDWIDTH_LIMIT = 0.6
SAVING_LIMIT_POINTS = 10.0
REFERENCE_GPU = "H100-80GB"
"""Whose peaks coefficients are relative to where the scenario names no GPU."""
ON_A_CPU = "measured here, but a CPU says nothing about a GPU"


def throughput_claims(case: Case, device: Device, out: Path, axes: Axes | None = None) -> list[Claim]:
    """Measure and judge; writes step-time files and all times into ``out``, the figure into ``out``/figures.

    ``axes`` are by default those for the kind of device. Raises what the simulation of the scenario raises.
    """
    import torch

    if case.engine.num_speculative_tokens:
        return [
            not_tested(CHECK, "step times", "steps with drafts are not run: the log does not say what was accepted")
        ]
    body = make_body(case.scenario.model, case.engine, case.plan, on_gpu=device.is_cuda)
    if body is None:
        return [not_tested(CHECK, "step times", "no layer has attention over tokens of its own, which is what is run")]
    clock = Clock(device.torch_device, seconds=0.3 if device.is_cuda else 0.1)
    gpu = find_gpu(case.scenario.gpu or REFERENCE_GPU)
    with torch.inference_mode():
        found = measure(
            body, gpu, case.log, axes or (GPU_AXES if device.is_cuda else CPU_AXES), clock, case.budget_bytes // 2
        )
    write_files(found, out, device.name)
    _draw(found, out, device)
    return [*_kernel(found, device), _bandwidth(found, device), *_fit(found, device), *_classes(found, case, device)]


def _kernel(found: Measured, device: Device) -> Iterator[Claim]:
    """The kernel that is timed computes attention; on a CPU, so does the one for GPUs."""
    kernel = found.kernel
    note = f"timed: {kernel.name}; {found.clock}; {found.body.note}"
    note += "".join(f"; not taken: {reason}" for reason in kernel.passed_over)
    claim = f"kernel {kernel.name} against gathered blocks in float32, largest difference"
    yield at_most(CHECK, claim, kernel.error, kernel.tolerance, note=note)
    if not device.is_cuda:
        claim = "kernel triton, interpreted, against gathered blocks, largest difference"
        difference = agreement("triton", [kind.shape for kind in found.body.kinds], device.torch_device)
        if isinstance(difference, float):
            yield at_most(CHECK, claim, difference, TOLERANCE["float32"])
        else:
            yield not_tested(CHECK, claim, difference)


def _bandwidth(found: Measured, device: Device) -> Claim:
    part = found.headline
    if part is None:
        return not_tested(CHECK, "full-attention decode, share of the copy bandwidth", "not one request fits")
    rate, copied = part.bytes_read / part.seconds, found.peaks.copy_bytes_per_s
    claim = f"full-attention decode at batch {part.requests}, context {part.context:,}: share of the copy bandwidth"
    note = f"{rate / 1e9:,.1f} GB/s of {copied / 1e9:,.1f} GB/s copied (read and written, as STREAM counts)"
    return _timed(device, claim, BANDWIDTH_LIMIT, round(rate / copied, 3), rate >= BANDWIDTH_LIMIT * copied, "", note)


def _fit(found: Measured, device: Device) -> Iterator[Claim]:
    fitted = found.fit
    note = "; ".join(f"{name} {value:.3g}" for name, value in fitted.coefficients.items())
    yield _timed(
        device,
        f"additive step time fitted to {fitted.points} made-up steps: mean error of steps left out",
        0.0,
        round(fitted.left_out_pct, 2),
        fitted.left_out_pct <= CLASS_LIMIT_PCT,
        "%",
        f"{fitted.in_sample_pct:.1f} % of those fitted; {note}; written to {ADDITIVE_FILE}",
        f"{CLASS_LIMIT_PCT:g} %",
    )
    if found.savings:
        last = found.savings[-1]
        apart = abs(last.measured_pct - last.simulated_pct)
        listed = "; ".join(
            f"{saving.context:,} tokens: {saving.measured_pct:.1f} % measured, {saving.simulated_pct:.1f} % simulated"
            for saving in found.savings
        )
        yield _timed(
            device,
            f"windows against all full, decode at batch {last.batch}, context {last.context:,}: time saved",
            round(last.simulated_pct, 1),
            round(last.measured_pct, 1),
            apart <= SAVING_LIMIT_POINTS,
            "%",
            listed,
            f"{SAVING_LIMIT_POINTS:g} points",
        )


def _classes(found: Measured, case: Case, device: Device) -> Iterator[Claim]:
    """Per class of steps: the mean of the scenario's steps, predicted with the fitted coefficients and measured."""
    for name in CLASSES:
        chosen = np.array([step.kind == name for step in found.replayed], bool)
        claim = f"the scenario's {name} steps, mean duration"
        if not chosen.any():
            why = "the scenario has none" if not found.counts[name] else "all of them are too large to be run here"
            yield not_tested(CHECK, claim, why)
            continue
        predicted, measured = found.predicted_s[chosen], found.measured_s[chosen]
        errors = errors_pct(predicted, measured)
        note = (
            f"{int(chosen.sum())} of {found.counts[name]:,} steps; error {errors['mean']:.1f} % on average, median "
            f"{errors['median']:.1f} %, bias {errors['bias']:+.1f} %"
        )
        means = round(1e3 * float(predicted.mean()), 3), round(1e3 * float(measured.mean()), 3)
        within = f"mean error {CLASS_LIMIT_PCT:g} %"
        yield _timed(device, claim, *means, errors["mean"] <= CLASS_LIMIT_PCT, "ms", note, within)
    yield _own_times(found, case, device)


def _own_times(found: Measured, case: Case, device: Device) -> Claim:
    """The scenario's own step times, if they are meant for this device."""
    claim = "the scenario's own step times, mean error"
    named = case.scenario.gpu
    if not device.is_cuda or named is None or named.split("-")[0].upper() not in device.name.upper():
        known = next((name for name in gpus() if name.split("-")[0] in device.name.upper()), device.name)
        return not_tested(CHECK, claim, f"they are for {named or 'no GPU'}, this is {known}")
    columns = case.result.steps
    spans = dict(zip(columns["step"].tolist(), (columns["end_s"] - columns["start_s"]).tolist(), strict=True))
    kept = [i for i, step in enumerate(found.replayed) if step.step in spans]
    if not kept:
        return not_tested(CHECK, claim, "none of the steps that were run is among those kept")
    own = np.array([spans[found.replayed[i].step] for i in kept])
    errors = errors_pct(own, found.measured_s[kept])
    note = f"{case.result.step_time.error_class}; bias {errors['bias']:+.1f} %: scheduling and sampling are not run"
    return at_most(CHECK, claim, round(errors["mean"], 2), 30.0, unit="%", note=note)


def _timed(
    device: Device,
    claim: str,
    predicted: Value,
    measured: Value,
    holds: bool,
    unit: str = "",
    note: str = "",
    tolerance: str = "",
) -> Claim:
    """A claim about times: judged on a GPU; on a CPU what was measured is shown without a verdict."""
    if device.is_cuda:
        return judged(CHECK, claim, predicted, measured, holds, unit=unit, tolerance=tolerance, note=note)
    return Claim(CHECK, claim, predicted, measured, Verdict.NOT_TESTED, unit, tolerance, f"{note}; {ON_A_CPU}")


def _draw(found: Measured, out: Path, device: Device) -> None:
    from sim.report.step_time_figure import write_step_time_figure

    (out / "figures").mkdir(exist_ok=True)
    write_step_time_figure(
        out / "figures" / "step_times.png",
        [step.kind for step in found.replayed],
        found.predicted_s,
        found.measured_s,
        [(saving.context, saving.measured_pct, saving.simulated_pct) for saving in found.savings],
        subtitle=f"{found.body.model.name} on {device.name}; {found.kernel.name}; {found.clock}",
    )
