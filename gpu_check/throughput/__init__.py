"""The check of throughput: not measured yet, and the report says so."""

from __future__ import annotations

from pathlib import Path

from gpu_check.case import Case
from gpu_check.claims import Claim, not_tested
from gpu_check.device import Device


def throughput_claims(case: Case, device: Device, out: Path) -> list[Claim]:
    """What was found; ``out`` takes files, ``out``/figures figures."""
    del case, device, out
    return [not_tested("throughput", "throughput", "this check is still missing")]
