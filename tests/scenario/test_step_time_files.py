"""Step times in files of their own: read strictly, written whole, and the same section wherever it stands."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from sim.errors import InputError
from sim.run import run_scenario
from sim.scenario import dump_yaml, load_scenario, read_step_time, write_step_time
from tests.cli.bad_cases import SCENARIO, TRACE

TABLE: dict[str, Any] = {
    "kind": "table",
    "decodes": [0, 1, 8],
    "context_tokens": [0, 100],
    "prefill_tokens": [0, 100],
    "seconds": [[[0.001, 0.1], [0.001, 0.1]], [[0.01, 0.1], [0.02, 0.1]], [[0.05, 0.2], [0.1, 0.2]]],
    "origin": {"model": "toy", "gpu": "H100-80GB", "in_sample_pct": {"step": 3.0}},
}
ADDITIVE: dict[str, Any] = {
    "kind": "additive",
    "a": 2.5,
    "a_attn": 1.5,
    "b_kv": 1.2,
    "b": 1.1,
    "t0_us_per_layer": 50.0,
    "tr_us": 12.0,
    "g": 3.0,
    "c0_ms": 11.0,
    "origin": {"model": "case", "gpu": "H100-80GB", "vllm": "0.33.0", "left_out_pct": {"tpot": 4.5, "ttft": 9.0}},
}


@pytest.fixture
def scenario(tmp_path: Path) -> Path:
    """A scenario that names the step times in ``steps.yaml``."""
    path = tmp_path / "case.yaml"
    path.write_text(SCENARIO.replace("step_time: {kind: constant, seconds: 0.01}", "step_time: {file: steps.yaml}"))
    (tmp_path / "trace.jsonl").write_text(TRACE)
    return path


@pytest.mark.parametrize("section", [TABLE, ADDITIVE, {"kind": "constant", "seconds": 0.25}])
def test_what_is_written_is_read(tmp_path: Path, section: dict[str, Any]) -> None:
    write_step_time(tmp_path / "steps.yaml", section, "measured one night\non one GPU")
    assert read_step_time(tmp_path / "steps.yaml") == section
    assert (tmp_path / "steps.yaml").read_text().startswith("# measured one night\n# on one GPU\n")
    assert [path.name for path in tmp_path.iterdir()] == ["steps.yaml"]


@pytest.mark.parametrize("section", [TABLE, ADDITIVE])
def test_a_file_is_the_section(scenario: Path, section: dict[str, Any]) -> None:
    """Resolved, a scenario holds what the file holds, and means the same without it."""
    write_step_time(scenario.parent / "steps.yaml", section)
    named = load_scenario(scenario)
    assert named.step_time == section
    resolved = scenario.parent / "resolved.yaml"
    resolved.write_text(dump_yaml(named.resolved()))
    (scenario.parent / "steps.yaml").unlink()
    assert load_scenario(resolved).step_time == section


def test_a_table_gives_the_times_of_a_run(scenario: Path) -> None:
    """Prompts of 100 alone: 0.1 s; then decodes at 100, 101, 102 computed tokens: 0.02 s, on along the line."""
    write_step_time(scenario.parent / "steps.yaml", TABLE)
    result = run_scenario(load_scenario(scenario))
    took = (result.steps["end_s"] - result.steps["start_s"]).round(6).tolist()
    assert took == [0.1, 0.02, 0.0201, 0.0202] * 2
    assert result.summary["latency_class"].endswith("; 50.0% of the steps lie outside of it and are extended")


def test_the_error_class_is_the_origins(scenario: Path) -> None:
    write_step_time(scenario.parent / "steps.yaml", {**ADDITIVE, "origin": {**ADDITIVE["origin"], "model": "other"}})
    said = run_scenario(load_scenario(scenario)).summary["latency_class"]
    assert said == "measured for other on H100-80GB, vLLM 0.33.0: used here for another model: TPOT within 10-30 %"


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"decodes": [1, 1, 8]}, "steps.yaml:2: decodes: expected numbers that rise"),
        ({"seconds": TABLE["seconds"][:2]}, "seconds: expected 3 lists, one per decodes"),
        ({"context_tokens": [0]}, "seconds.0: expected 1 lists, one per context_tokens"),
        ({"prefill_tokens": [0, 5, 9]}, "seconds.0.0: expected 3 numbers, one per prefill_tokens"),
        ({"kind": "tabel"}, "nearest is 'table'"),
        ({"secnds": 3}, "unknown key"),
        ({"origin": {"modell": "x"}}, "origin.modell: unknown key"),
    ],
)
def test_a_bad_file_is_named_with_its_line(scenario: Path, changes: dict[str, Any], says: str) -> None:
    (scenario.parent / "steps.yaml").write_text(dump_yaml({**TABLE, **changes}))
    with pytest.raises(InputError) as caught:
        load_scenario(scenario)
    assert "steps.yaml" in str(caught.value)
    assert says in str(caught.value)


def test_a_missing_file_says_who_writes_one(scenario: Path) -> None:
    with pytest.raises(
        InputError, match=r"case.yaml:\d+: step_time.file: no file .*write one with `hybridkv calibrate`"
    ):
        load_scenario(scenario)


def test_nothing_half_written(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="decodes"):
        write_step_time(tmp_path / "steps.yaml", {**TABLE, "decodes": [2, 1, 0]})
    assert list(tmp_path.iterdir()) == []
