"""A claim of the simulator's, what was measured, and the verdict; a report is a list of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Literal

Check = Literal["memory", "content", "throughput"]
"""The three checks, as ``--checks`` names them."""
CHECKS: tuple[Check, ...] = ("memory", "content", "throughput")
Value = int | float | str | None
"""What is predicted or measured: a number, or a short text; None where there is none."""

CONFIRMED_CODE, REFUTED_CODE, NOT_RUN_CODE = 0, 1, 2


class Verdict(StrEnum):
    """What the measurement says about the claim."""

    CONFIRMED = "confirmed"
    REFUTED = "refuted"
    NOT_TESTED = "not tested on this device"


@dataclass(frozen=True, slots=True)
class Claim:
    """One row of the report: ``claim`` in words, ``predicted`` by the simulator, ``measured`` with real tensors.

    ``unit`` belongs to both values; ``tolerance`` says how far apart they may be (empty: not at all); ``note`` says
    what else a reader must know, for instance why something was not tested.
    """

    check: Check
    claim: str
    predicted: Value
    measured: Value
    verdict: Verdict
    unit: str = ""
    tolerance: str = ""
    note: str = ""


def judged(
    check: Check,
    claim: str,
    predicted: Value,
    measured: Value,
    holds: bool,
    *,
    unit: str = "",
    tolerance: str = "",
    note: str = "",
) -> Claim:
    """A claim that was tested, and whether it holds.

    >>> judged("memory", "bytes of the pool", 4096, 4096, True).verdict.value
    'confirmed'
    """
    verdict = Verdict.CONFIRMED if holds else Verdict.REFUTED
    return Claim(check, claim, predicted, measured, verdict, unit, tolerance, note)


def equal(check: Check, claim: str, predicted: Value, measured: Value, *, unit: str = "", note: str = "") -> Claim:
    """A claim that holds when both values are the same.

    >>> equal("memory", "bytes of the pool", 4096, 4095, unit="bytes").verdict.value
    'refuted'
    """
    return judged(check, claim, predicted, measured, predicted == measured, unit=unit, note=note)


def at_most(
    check: Check, claim: str, measured: float, limit: float, *, predicted: Value = 0, unit: str = "", note: str = ""
) -> Claim:
    """A claim that holds when the measured error is no larger than ``limit``; a NaN refutes it.

    >>> at_most("content", "largest error", 3e-7, 1e-5).tolerance
    '1e-05'
    >>> at_most("content", "largest error", float("nan"), 1e-5).verdict.value
    'refuted'
    """
    return judged(check, claim, predicted, measured, measured <= limit, unit=unit, tolerance=f"{limit:g}", note=note)


def not_tested(check: Check, claim: str, why: str, *, predicted: Value = None, unit: str = "") -> Claim:
    """A claim that this device, or this run, cannot test, and why."""
    return Claim(check, claim, predicted, None, Verdict.NOT_TESTED, unit, "", why)


def exit_code(claims: Sequence[Claim]) -> int:
    """0: all that was tested is confirmed; 1: something is refuted; 2: nothing was tested.

    >>> exit_code([]), exit_code([equal("memory", "x", 1, 1), not_tested("memory", "y", "needs CUDA")])
    (2, 0)
    """
    verdicts = {claim.verdict for claim in claims}
    if Verdict.REFUTED in verdicts:
        return REFUTED_CODE
    return CONFIRMED_CODE if Verdict.CONFIRMED in verdicts else NOT_RUN_CODE
