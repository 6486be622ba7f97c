"""The verdict: one table for people, the same as JSON for machines."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from math import isfinite
from pathlib import Path
from typing import Any

from gpu_check.claims import Claim, Value, Verdict, exit_code
from gpu_check.device import Device
from sim.report.tables import Table, number

FILE = "gpu_check.json"
_OVERALL = ("confirmed", "refuted", "nothing was tested")


@dataclass(frozen=True, slots=True)
class Report:
    """All claims about one scenario, tested on one device."""

    scenario: str
    device: Device
    claims: Sequence[Claim]

    @property
    def exit_code(self) -> int:
        """0: all that was tested is confirmed; 1: something is refuted; 2: nothing was tested."""
        return exit_code(self.claims)

    @property
    def verdict(self) -> str:
        """The exit code in words."""
        return _OVERALL[self.exit_code]

    def as_json(self) -> dict[str, Any]:
        """The report as plain data."""
        return {
            "scenario": self.scenario,
            "verdict": self.verdict,
            "device": self.device.described(),
            "claims": [_plain(claim) for claim in self.claims],
        }

    def write(self, folder: Path) -> None:
        """Write the JSON into ``folder``."""
        text = json.dumps(self.as_json(), indent=2, ensure_ascii=False, allow_nan=False)
        (folder / FILE).write_text(text + "\n", encoding="utf-8")

    def table(self, places: Sequence[str] = ()) -> Table:
        """The report for people; notes of claims follow the rows, then ``places`` where files are."""
        device = self.device
        driver = f", driver {device.driver}" if device.driver else ""
        title = f"{self.scenario}: {self.verdict} on {device.name}{driver}, torch {device.torch_version}"
        notes = [f"{claim.claim}: {claim.note}" for claim in self.claims if claim.note]
        header = ("check", "claim", "predicted", "measured", "tolerance", "verdict")
        return Table(title, header, [_row(claim) for claim in self.claims], [*notes, *places], prose=True)


def _plain(claim: Claim) -> dict[str, Any]:
    """The claim as JSON takes it: what is no finite number is written as a word."""
    values = asdict(claim)
    return {
        key: str(value) if isinstance(value, float) and not isfinite(value) else value for key, value in values.items()
    }


def _row(claim: Claim) -> tuple[str, ...]:
    verdict = claim.verdict.value.upper() if claim.verdict is Verdict.REFUTED else claim.verdict.value
    shown = (_shown(claim.predicted, claim.unit), _shown(claim.measured, claim.unit))
    return (claim.check, claim.claim, *shown, claim.tolerance, verdict)


def _shown(value: Value, unit: str) -> str:
    """A value with its unit.

    >>> _shown(1234567, "bytes"), _shown(0.0123, "s"), _shown(None, "s"), _shown("as planned", "")
    ('1,234,567 bytes', '0.0123 s', '-', 'as planned')
    """
    if value is None or isinstance(value, str):
        return value or "-"
    return f"{number(value)} {unit}".rstrip()
