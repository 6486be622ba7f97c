"""The Python API: it does what the commands do, and hands out frames."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import sim
from sim import compare, load_scenario, plan, simulate, sweep
from sim.cli import main
from sim.errors import InputError, RefusalError


def test_a_simulation_saves_what_the_command_writes(tmp_path: Path) -> None:
    assert main(["run", "toy", "--no-figures", "--out", str(tmp_path / "typed")]) == 0
    saved = simulate("toy").save(tmp_path / "called", figures=False)
    names = sorted(path.name for path in saved.iterdir())
    assert names == sorted(path.name for path in (tmp_path / "typed").iterdir())
    for name in names:
        assert (saved / name).read_bytes() == (tmp_path / "typed" / name).read_bytes(), name


def test_frames_hold_the_columns_of_the_tables() -> None:
    run = simulate(load_scenario("toy"), explain=True, step_log=True, watch=["0"], block_map=True)
    assert len(run.steps) == run.summary["steps"]
    assert run.requests.loc[0, "output_tokens"] == run.summary["output_tokens"]
    assert {"live", "cached"} <= {name.split("_")[2] for name in run.steps.columns if name.startswith("group_0_")}
    assert run.step_log is not None
    assert [entry["step"] for entry in run.step_log if "step" in entry] == run.steps["step"].tolist()
    assert run.stories["0"].happenings[0]["kind"] == "admitted"


def test_a_block_map_has_as_many_blocks_as_are_in_use() -> None:
    run = simulate("toy", block_map=True)
    assert run.block_map is not None
    codes = run.block_map.codes
    assert codes.shape == (run.summary["steps"], run.summary["num_blocks"])
    assert (codes >= 0).sum(1).tolist() == run.steps["used_blocks"].tolist()


def test_a_plan_is_the_one_of_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    flags = ["--available-kv-cache-memory-gib", "20", "--max-model-len", "8192"]
    assert main(["plan", "gpt-oss-20b", *flags, "--json"]) == 0
    fit = plan("gpt-oss-20b", available_kv_cache_memory_gib=20, max_model_len=8192)
    assert fit.data() == json.loads(capsys.readouterr().out)
    assert fit.groups["block_size"].tolist() == list(fit.plan.group_block_sizes)


def test_a_comparison_tells_refusals_apart() -> None:
    scenario = load_scenario(
        "toy", ["variants={small: {engine.max_model_len: 512}, long: {engine.max_model_len: 4096}}"]
    )
    found = compare(scenario)
    assert list(found.table.index) == ["small"]
    assert "4096" in found.refusals["long"].replace(",", "")
    assert found.table.loc["small", "ttft_s.p50"] == found.runs["small"].summary["ttft_s"]["p50"]


def test_a_comparison_of_nothing_but_refusals_is_one() -> None:
    with pytest.raises(RefusalError, match="4096"):
        compare(load_scenario("toy", ["variants={long: {engine.max_model_len: 4096}}"]))


def test_errors_are_those_of_the_commands() -> None:
    with pytest.raises(InputError, match=r"max-model-lenn.*nearest is --max-model-len"):
        plan("gpt-oss-20b", available_kv_cache_memory_gib=20, max_model_lenn=8192)
    with pytest.raises(RefusalError, match="GiB"):
        plan("gpt-oss-20b", available_kv_cache_memory_gib=0.5)
    with pytest.raises(AttributeError, match="it offers"):
        sim.simulat  # noqa: B018


def test_a_sweep_is_a_row_per_point_and_goes_on_from_its_folder(tmp_path: Path) -> None:
    file = tmp_path / "lengths.yaml"
    file.write_text("scenario: toy\ngrid:\n  workload.synthetic.output_tokens: [4, 8]\n")
    frame = sweep(file, folder=tmp_path / "kept", workers=1)
    assert frame["workload.synthetic.output_tokens"].tolist() == [4, 8]
    assert frame["output_tokens"].tolist() == [4, 8]
    assert frame["error"].tolist() == [None, None]
    kept = sorted(path.name for path in (tmp_path / "kept").iterdir())
    assert kept
    assert sweep(file, folder=tmp_path / "kept", workers=1).equals(frame)
    assert sorted(path.name for path in (tmp_path / "kept").iterdir()) == kept
