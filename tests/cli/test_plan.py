"""``plan`` with vLLM's own command line: what is honoured, what is listed, what is shown beside the plan."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from sim.cli import main


def printed(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """What a plan that succeeds prints."""
    assert main(["plan", *arguments]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    return out


def data(capsys: pytest.CaptureFixture[str], *arguments: str) -> Any:
    """The plan as data."""
    return json.loads(printed(capsys, "--json", *arguments))


def test_a_pasted_line_plans_what_the_flags_plan(capsys: pytest.CaptureFixture[str]) -> None:
    flags = ["--max-model-len", "65536", "--max-num-batched-tokens", "4k", "-tp", "2", "--kv-cache-dtype", "fp8"]
    pasted = data(capsys, "--", "vllm", "serve", "google/gemma-3-27b-it", *flags, "--port", "8000")
    plain = data(capsys, "gemma-3-27b", *flags)
    assert pasted["ignored_flags"] == {"--port": "the server"}
    assert pasted | {"ignored_flags": {}} == plain
    assert (plain["gpu"], plain["gpu_assumed"]) == ("H100-80GB", True)


def test_a_file_of_vllm_plans_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("serve.yaml").write_text("model: gemma-3-27b\nmax-model-len: 8192\nkv-cache-memory-bytes: 20G\n")
    Path("serve.json").write_text('{"model": "gemma-3-27b", "max_model_len": 8192, "kv_cache_memory_bytes": "20G"}')
    whole = data(capsys, "serve.yaml")
    assert whole["memory"] == {"kv_cache": {"bytes": 20 << 30, "source": "given", "spread_bytes": 0}}
    assert data(capsys, "serve.json") == whole
    assert (
        data(capsys, "--", "vllm", "serve", "--config", "serve.yaml", "--max-model-len", "4096")["max_model_len"]
        == 4096
    )


def test_a_memory_that_is_not_given_is_estimated_and_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    out = printed(capsys, "gemma-3-27b", "--gpu-memory-utilization", "0.95")
    for words in ("H100-80GB assumed", "Memory of each H100-80GB", "0.95, given", "= KV cache", "estimate ±"):
        assert words in out
    plan = data(capsys, "gemma-3-27b", "--max-model-len", "8192")
    assert plan["gpu_memory_utilization"] == 0.92
    assert {item["source"] for item in plan["memory"].values()} == {"estimate"}


@pytest.mark.parametrize(("utilization", "sure"), [(0.92, False), (0.85, True)])
def test_a_refusal_for_want_of_estimated_memory_says_how_sure_it_is(
    utilization: float, sure: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = ["gemma-3-27b", "--gpu-memory-utilization", str(utilization)]
    assert main(["plan", *asked]) == 2
    error = capsys.readouterr().err
    said = re.search(
        r"needs ([\d.]+) GiB .*?, ([\d.]+) GiB are available by estimate, ([\d.]+) GiB too little.*"
        r"--max-model-len (\d+), the longest that fits the estimate \(KV cache memory: .*?± ([\d.]+)",
        error,
    )
    assert said, error
    needed, available, missing, longest, spread = map(float, said.groups())
    assert missing == pytest.approx(needed - available, abs=1e-9)
    assert (missing > spread) == sure == ("more than the estimate's error: vLLM refuses to start" in error)
    assert sure != ("vLLM may start or refuse; to decide, give --available-kv-cache-memory-gib" in error)
    assert data(capsys, *asked, "--max-model-len", str(int(longest)))["max_model_len"] == longest
    decided = data(capsys, "gemma-3-27b", "--available-kv-cache-memory-gib", str(needed + 0.02))
    assert decided["max_model_len"] == 131_072


@pytest.mark.parametrize("flag", [("--available-kv-cache-memory-gib", "40"), ("--num-gpu-blocks-override", "32768")])
def test_a_given_memory_bypasses_the_estimate(flag: tuple[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    plan = data(capsys, "gemma-3-27b", *flag)
    assert plan["num_blocks"] == 32_768
    assert list(plan["memory"]) == ["kv_cache"]
    assert plan["startup_line"].startswith("GPU KV cache size: 291,658 tokens")


def test_the_longest_that_fits(capsys: pytest.CaptureFixture[str]) -> None:
    plan = data(capsys, "llama-3.1-8b", "--max-model-len", "-1", "--available-kv-cache-memory-gib", "4")
    assert (plan["max_model_len"], plan["auto_fitted_from"]) == (32_752, 131_072)
    assert plan["max_concurrency"] >= 1
    everything = data(capsys, "llama-3.1-8b", "--max-model-len", "auto", "--available-kv-cache-memory-gib", "40")
    assert everything["max_model_len"] == everything["auto_fitted_from"]


def test_fixed_and_marginal_bytes_are_apart(capsys: pytest.CaptureFixture[str]) -> None:
    short, long = (
        data(capsys, "gemma-3-27b", "--available-kv-cache-memory-gib", "40", "--max-model-len", length)
        for length in ("65536", "131072")
    )
    per_token = long["bytes_per_token"]
    assert per_token == 10 * 2 * 16 * 128 * 2
    assert short["fixed_bytes_per_request"] == long["fixed_bytes_per_request"]
    charged = sum(group["admission_blocks"] for group in long["groups"]) * long["block_bytes"]
    assert charged == long["fixed_bytes_per_request"] + per_token * 131_072


def test_one_setting_changed_at_a_time(capsys: pytest.CaptureFixture[str]) -> None:
    plan = data(capsys, "gemma-3-27b", "--available-kv-cache-memory-gib", "40", "-tp", "2")
    rows = {row["label"]: row for row in plan["alternatives"]}
    assert list(rows) == ["as asked", "hybrid manager off", "KV cache in fp8", "-tp 1", "-tp 4", "-tp 8", "-pp 2"]
    assert rows["as asked"]["kv_cache_size_tokens"] == plan["kv_cache_size_tokens"]
    assert rows["-tp 1"]["kv_cache_size_tokens"] == 291_658
    assert rows["KV cache in fp8"]["max_concurrency"] > 1.9 * plan["max_concurrency"]
    tight = data(capsys, "gemma-3-27b", "--available-kv-cache-memory-gib", "40")["alternatives"][1]
    assert tight["refusal"]
    assert 0 < tight["estimated_max_len"] < 131_072


def test_states_limit_max_num_seqs_and_say_why_blocks_are_long(capsys: pytest.CaptureFixture[str]) -> None:
    plan = data(capsys, "granite-4.0-h-small", "--available-kv-cache-memory-gib", "20", "--max-model-len", "32k")
    assert plan["max_num_seqs_limit"] == plan["num_blocks"]
    assert plan["block_size_reason"].startswith("528 tokens: an attention page")
    assert 0 <= plan["state_padding_share"] < 0.1
    manager_off = next(row for row in plan["alternatives"] if row["label"] == "hybrid manager off")
    assert manager_off["kv_cache_size_tokens"] is None


@pytest.mark.parametrize("gpu", ["H100", "H200", "A100", "L40S", "L4", "B200", "MI300X", "CPU"])
def test_every_profile_plans(gpu: str, capsys: pytest.CaptureFixture[str]) -> None:
    plan = data(capsys, "gemma-3-1b", "--gpu", gpu, "--max-model-len", "8192")
    assert plan["gpu"].startswith(gpu)
    assert not plan["gpu_assumed"]
    assert plan["groups"][0]["block_size"] == (128 if gpu == "CPU" else 16)
    assert plan["startup_line"].startswith("CPU" if gpu == "CPU" else "GPU")
