"""From file to scenario: defaults, overrides, variants, and the resolved file that means the same."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from sim.errors import InputError
from sim.scenario import Scenario, dump_yaml, load_scenario, parse_override, shipped_scenarios
from tests.cli.bad_cases import SCENARIO

VARIANTS = """
variants:
  dotted: {engine.block_size: 32}
  nested: {engine: {async_scheduling: false}, memory: {kv_cache_memory_bytes: 100M}}
  synthetic: {workload: {synthetic: {requests: 3, arrival: {kind: all_at_once}, prompt_tokens: 9, output_tokens: 1}}}
  gpu: {hardware.gpu: A100-80GB, step_time: {kind: additive}}
  refused: {engine.max_model_len: 9000}
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A good scenario file."""
    file = tmp_path / "case.yaml"
    file.write_text(SCENARIO + VARIANTS)
    return file


def reloaded(scenario: Scenario, folder: Path) -> Scenario:
    """The scenario as its resolved file gives it, from another folder."""
    folder.mkdir()
    (folder / "scenario.resolved.yaml").write_text(dump_yaml(scenario.resolved()))
    return load_scenario(folder / "scenario.resolved.yaml")


def test_defaults_are_vllms(path: Path) -> None:
    engine = load_scenario(path).engine
    assert (engine.max_num_batched_tokens, engine.max_num_seqs, engine.max_model_len) == (8192, 8, 1024)
    assert engine.async_scheduling
    assert engine.prefix_cache_retention_interval == 0


def test_null_retention_is_a_setting_and_null_elsewhere_the_default(path: Path) -> None:
    changes = ["engine.prefix_cache_retention_interval=null", "engine.block_size=null"]
    engine = load_scenario(path, changes).engine
    assert engine.prefix_cache_retention_interval is None
    assert engine.block_size is None


def test_lengths_may_be_written_as_vllms_command_line_takes_them(path: Path) -> None:
    assert load_scenario(path, ["engine.max_num_batched_tokens=1k"]).engine.max_num_batched_tokens == 1000


def test_budgets_follow_the_hardware(path: Path) -> None:
    assert load_scenario(path, ["hardware.usage=offline"]).engine.max_num_batched_tokens == 8 * 1024
    assert load_scenario(path, ["hardware.gpu=A100-80GB"]).engine.max_num_batched_tokens == 2048


def test_setting_one_memory_takes_the_other_away(path: Path) -> None:
    memory = load_scenario(path, ["memory.available_kv_cache_memory_gib=2"]).memory
    assert (memory.available_kv_cache_memory_gib, memory.num_gpu_blocks_override) == (2, None)


def test_another_kind_of_step_time_takes_the_old_keys_away(path: Path) -> None:
    assert load_scenario(path, ["step_time.a=3", "step_time.kind=additive"]).step_time == {"kind": "additive", "a": 3}


def test_overrides_reach_into_lists(path: Path) -> None:
    scenario = load_scenario(path, ["model.layers.1.window=64"])
    assert [layer.window for layer in scenario.model.layers] == [None, None, 64, 64, 64, 64]


def test_a_layers_kind_changes_alone(path: Path) -> None:
    layers = load_scenario(path, ["model.layers.0.kind=sliding_window", "model.layers.0.window=8"]).model.layers
    assert [layer.window for layer in layers] == [8, 8, 32, 32, 32, 32]


@pytest.mark.parametrize(
    "changes", [[], ["hardware.usage=offline", "engine.block_size=8"], ["step_time.kind=additive"]]
)
def test_the_resolved_file_is_the_same_scenario(path: Path, changes: list[str]) -> None:
    changes = [change if change != "step_time.kind=additive" else "step_time={}" for change in changes]
    scenario = load_scenario(path, changes)
    again = reloaded(scenario, path.parent / "elsewhere")
    assert again.resolved() == scenario.resolved()
    assert (again.engine, again.memory, again.model.layers) == (scenario.engine, scenario.memory, scenario.model.layers)


def test_the_resolved_file_has_the_same_variants(path: Path) -> None:
    scenario = load_scenario(path)
    again = reloaded(scenario, path.parent / "elsewhere")
    for name in ("dotted", "nested", "synthetic", "gpu"):
        assert again.variant(name).resolved() == scenario.variant(name).resolved(), name
    assert scenario.resolved()["variants"]["refused"] == {"engine": {"max_model_len": 9000}}


def test_variants_change_what_they_say(path: Path) -> None:
    scenario = load_scenario(path)
    assert scenario.compared() == ("dotted", "nested", "synthetic", "gpu", "refused")
    assert scenario.variant("dotted").engine.block_size == 32
    assert scenario.variant("nested").memory.kv_cache_memory_bytes == 100 << 20
    assert "trace" not in scenario.variant("synthetic").workload
    assert scenario.variant("gpu").engine.max_num_batched_tokens == 2048
    assert scenario.variant("gpu").variants == {}


def test_without_variants_hybrid_is_compared_with_all_full(tmp_path: Path) -> None:
    file = tmp_path / "case.yaml"
    file.write_text(SCENARIO)
    scenario = load_scenario(file)
    switches = {name: scenario.variant(name).engine.disable_hybrid_kv_cache_manager for name in scenario.compared()}
    assert switches == {"hybrid": False, "all-full": True}


def test_an_error_in_a_variant_names_its_line(path: Path) -> None:
    path.write_text(SCENARIO + "variants:\n  bad:\n    engine.block_size: 0\n")
    with pytest.raises(InputError) as caught:
        load_scenario(path).variant("bad")
    assert f"{path}:19" in str(caught.value)


def test_the_name_is_the_files_unless_given(path: Path) -> None:
    path.write_text(SCENARIO.replace("name: case\n", ""))
    assert load_scenario(path).name == "case"


@pytest.mark.parametrize(
    ("text", "value"), [("a.b=1", 1), ("a.b=x=y", "x=y"), ("a.b=", None), ("a.b={c: [1]}", {"c": [1]})]
)
def test_set_takes_yaml(text: str, value: Any) -> None:
    override = parse_override(text)
    assert (override.path, override.value) == (("a", "b"), value)


def test_shipped_scenarios_are_found_by_name() -> None:
    assert {"toy", "hybrid-vs-all-full"} <= shipped_scenarios().keys()
    assert load_scenario("toy").name == "toy"
