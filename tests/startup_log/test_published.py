"""Startup logs from the field, written out in vLLM's wording: all whose inputs are known must reproduce."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from sim.startup_log import explain_text
from tests.startup_log.cases import log_text

LOGS = Path(__file__).resolve().parents[3] / "shared" / "data" / "startup_logs.jsonl"
STRENGTHS = ("all inputs stated or public config", "some inputs deduced from the numbers")


def published() -> list[dict[str, Any]]:
    """The cases that were reproduced by hand before; none where the file is not at hand."""
    if not LOGS.is_file():
        return []
    cases = [json.loads(line) for line in LOGS.read_text(encoding="utf-8").splitlines()]
    return [case for case in cases if case["checked"]["strength"] in STRENGTHS]


@pytest.mark.skipif(
    not LOGS.is_file(), reason="../shared/data/startup_logs.jsonl is not here; excerpts are in this folder"
)
@pytest.mark.parametrize("case", published(), ids=lambda case: case["id"])
def test_a_published_log_reproduces(case: dict[str, Any]) -> None:
    found = explain_text(log_text(case))
    assert found.agrees, found.verdict
