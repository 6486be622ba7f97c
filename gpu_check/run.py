"""From the command's flags to a printed report and a folder of results."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from gpu_check.case import Case
from gpu_check.claims import CHECKS, NOT_RUN_CODE, Check, Claim
from gpu_check.device import Device, choose_device
from gpu_check.report import FILE, Report
from sim.cli.console import print_json, print_tables
from sim.cli.given import destinations_of, set_overrides
from sim.errors import InputError, StallError, nearest
from sim.report.folder import FIGURES, ResultFolder
from sim.scenario import load_scenario
from sim.scenario.numbers import human_readable_int

DEFAULT_FRACTION = {"cuda": 0.9, "cpu": 0.05}
"""Shares of the free memory that a check fills unless told otherwise."""


OWN_FILES = frozenset({FILE, "step_time.yaml", "step_time_table.yaml", "throughput.json"})
"""What a folder of results may hold of an earlier check, so that it is replaced."""


@dataclass(frozen=True, slots=True)
class Request:
    """What the command line asks for, as typed."""

    file: str
    device: str
    fraction: float | None
    bytes: str | None
    checks: str
    out: Path | None
    sets: Sequence[str]
    as_json: bool


def run_check(request: Request) -> int:
    """Check one scenario, print the report, write its folder; returns the exit code.

    Raises InputError for whatever keeps the check from running.
    """
    checks = wanted_checks(request.checks)
    device = choose_device(request.device)
    budget = budget_bytes(device, request.fraction, request.bytes)
    scenario = load_scenario(request.file, set_overrides(request.sets))
    case = Case(scenario, budget)
    (destination,) = destinations_of([scenario.name], request.out or Path("results") / f"{scenario.name}-gpu-check")
    with ResultFolder(destination, OWN_FILES) as folder:
        try:
            report = check_case(case, device, checks, folder.path)
        except StallError as error:  # its own exit code is taken by what is refuted
            sys.stderr.write(f"hybridkv: error: {error}\n")
            return NOT_RUN_CODE
        report.write(folder.path)
        folder.commit()
    if request.as_json:
        print_json(report.as_json())
    else:
        print_tables([report.table([f"As JSON: {destination / FILE}"])])
    return report.exit_code


def check_case(case: Case, device: Device, checks: Sequence[Check], out: Path) -> Report:
    """Run the checks named, in their order, each with ``out`` for files and ``out``/figures for figures."""
    (out / FIGURES).mkdir(exist_ok=True)
    claims: list[Claim] = []
    for check in checks:
        _say(f"{case.scenario.name}: {check}")
        claims += _function(check)(case, device, out)
    if not any((out / FIGURES).iterdir()):
        (out / FIGURES).rmdir()
    return Report(case.scenario.name, device, claims)


def wanted_checks(text: str) -> tuple[Check, ...]:
    """The checks that a list of words names, in their own order.

    >>> wanted_checks("content,memory")
    ('memory', 'content')
    """
    words = [word.strip() for word in text.split(",") if word.strip()]
    for word in words:
        if word not in CHECKS:
            close = nearest(word, CHECKS)
            hint = f"; nearest is {close}" if close else ""
            raise InputError(f"names some of {', '.join(CHECKS)}, got {word!r}{hint}", where="--checks")
    if not words:
        raise InputError(f"names at least one of {', '.join(CHECKS)}", where="--checks")
    return tuple(check for check in CHECKS if check in words)


def budget_bytes(device: Device, fraction: float | None, number: str | None) -> int:
    """The bytes that a check may fill: ``number``, or ``fraction`` of what is free on ``device``."""
    if fraction is not None and number is not None:
        raise InputError("give one of --fraction and --bytes", where="--bytes")
    free = device.free_bytes()
    if number is not None:
        try:
            given = human_readable_int(number)
        except ValueError as error:
            raise InputError(f"{error}, got {number!r}", where="--bytes") from error
        if not 0 < given <= free:
            raise InputError(f"must be above 0 and at most the {free:,} bytes free now, got {number}", where="--bytes")
        return given
    share = DEFAULT_FRACTION[device.kind] if fraction is None else fraction
    if not 0 < share < 1:
        raise InputError(f"must be above 0 and below 1, got {share:g}", where="--fraction")
    return int(free * share)


def _function(check: Check) -> Callable[[Case, Device, Path], list[Claim]]:
    """The check's own function, imported when it is needed: each brings torch with it."""
    if check == "memory":
        from gpu_check.memory import memory_claims

        return memory_claims
    if check == "content":
        from gpu_check.content import content_claims

        return content_claims
    from gpu_check.throughput import throughput_claims

    return throughput_claims


def _say(line: str) -> None:
    """Say on stderr what is being done, where someone is looking."""
    if sys.stderr.isatty():
        sys.stderr.write(f"hybridkv: {line}\n")
