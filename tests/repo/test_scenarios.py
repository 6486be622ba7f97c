"""Every shipped scenario opens with its question and the expected answer, and loads."""

from __future__ import annotations

from pathlib import Path

import pytest

from sim.scenario import load_scenario
from tests.repo.tree import ROOT, scenario_files


def test_there_are_scenarios() -> None:
    assert len(scenario_files()) >= 6


@pytest.mark.parametrize("path", scenario_files())
def test_a_scenario_asks_and_expects(path: str) -> None:
    scenario = load_scenario(str(ROOT / path), [])
    assert scenario.name == Path(path).stem, "NAME on the command line is the file's name"
    assert scenario.question.strip().endswith("?")
    assert len(scenario.expected.strip()) >= 20


@pytest.mark.parametrize("path", scenario_files())
def test_a_scenario_opens_with_its_question(path: str) -> None:
    head = (ROOT / path).read_text(encoding="utf-8").partition("\nmodel:")[0]
    assert "question:" in head
    assert "expected" in head.lower()


@pytest.mark.parametrize("path", scenario_files())
def test_a_scenario_is_found_by_name_with_every_default_written_out(path: str) -> None:
    resolved = load_scenario(Path(path).stem, []).resolved()
    assert set(resolved) >= {"name", "question", "model", "engine", "memory", "workload", "step_time", "seed"}
