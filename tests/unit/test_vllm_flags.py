"""Reading vLLM's command line: spellings, values, where it begins in what people paste, and what it asks for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from sim.errors import InputError, RefusalError
from sim.vllm_flags import (
    ServeSettings,
    arguments_of_config,
    find_command,
    flag_table,
    is_vllm_config,
    looks_like_command,
    read_arguments,
    settings_of,
)

SEVERAL = (
    '{"kv_connector": "MultiConnector", "kv_connector_extra_config": {"connectors": [{"kv_connector": "NixlConnector"},'
    ' {"kv_connector": "%s"}]}}'
)


def values(*words: str) -> dict[str, Any]:
    """What the flags in ``words`` say, by name."""
    return {item.flag.key: item.value for item in read_arguments(words)[1]}


def settings(*words: str, **environment: str) -> ServeSettings:
    """The settings that ``words`` ask for."""
    return settings_of(read_arguments(words)[1], environment)


def test_every_spelling_means_one_flag() -> None:
    spellings = [spelling for flag in flag_table().values() for spelling in flag.spellings]
    assert len(spellings) == len(set(spellings))
    assert len(flag_table()) > 300
    assert all(flag.touches for flag in flag_table().values())


@pytest.mark.parametrize(
    ("words", "key", "value"),
    [
        (("--max-model-len", "32k"), "max_model_len", 32_000),
        (("--max_model_len=32K",), "max_model_len", 32_768),
        (("--max-model-len", "-1"), "max_model_len", -1),
        (("--max-model-len", "auto"), "max_model_len", -1),
        (("-tp", "2"), "tensor_parallel_size", 2),
        (("-tp=2",), "tensor_parallel_size", 2),
        (("--tensor-parallel", "4"), "tensor_parallel_size", 4),
        (("--device-memory-utilization", "0.5"), "gpu_memory_utilization", 0.5),
        (("--no-enable-prefix-caching",), "enable_prefix_caching", False),
        (("--disable-prefix-caching",), "enable_prefix_caching", False),
        (("--enable-hybrid-kv-cache-manager",), "disable_hybrid_kv_cache_manager", False),
        (("--prefix-cache-retention-interval", "None"), "prefix_cache_retention_interval", None),
        (("-O0",), "optimization_level", "0"),
        (("--served-model-name", "a", "b"), "served_model_name", ["a", "b"]),
        (("-sc.method", "mtp", "-sc.num_speculative_tokens=2"), "speculative_config", None),
        (("--speculative-config", '{"method": "ngram"}'), "speculative_config", {"method": "ngram"}),
        (("--hf-overrides.rope_scaling.factor", "4"), "hf_overrides", {"rope_scaling": {"factor": 4}}),
        (("--max-num-seqs", "3", "--max-num-seqs", "5"), "max_num_seqs", 5),
    ],
)
def test_values_are_read_as_vllm_reads_them(words: tuple[str, ...], key: str, value: Any) -> None:
    expected = {"method": "mtp", "num_speculative_tokens": 2} if words[0] == "-sc.method" else value
    assert values(*words) == {key: expected}


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--max-model-length", "3"), "nearest is --max-model-len"),
        (("--max-num", "3"), "could be --max-num-active-seqs"),
        (("--max-num-seqs", "many"), "expected a whole number"),
        (("--max-num-seqs", "1k"), "expected a whole number"),
        (("--max-num-seqs",), "expected a value"),
        (("--max-num-seqs", "--port", "1"), "expected a value"),
        (("--enforce-eager=true",), "takes no value"),
        (("--swap-space", "4"), "no longer has this flag"),
        (("--speculative-config", "{method: mtp}"), "no JSON"),
        (("--port.x", "1"), "takes no keys of its own"),
        (("-zz",), "no flag of vLLM 0.33.0"),
    ],
)
def test_what_cannot_be_read_is_one_line(words: tuple[str, ...], says: str) -> None:
    with pytest.raises(InputError, match=says):
        read_arguments(words)


@pytest.mark.parametrize(
    "line",
    [
        "vllm serve m -tp 2",
        "$ VLLM_USE_V2_MODEL_RUNNER=1 vllm serve m \\\n  -tp 2  # two GPUs",
        "python3 -m vllm.entrypoints.openai.api_server --model m -tp 2",
        "docker run --gpus all -v ~/vllm:/cache -e HF_TOKEN=x -p 8000:8000 vllm/vllm-openai:v0.33.0 --model m -tp 2",
        "docker run --entrypoint vllm --name vllm-1 ghcr.io/me/my-vllm@sha256:abc serve m -tp 2",
        "podman run rocm/vllm:latest vllm serve m -tp 2",
    ],
)
def test_a_pasted_command_is_found(line: str) -> None:
    for words in ([line], line.replace("\\\n", "\\ ").split("  #")[0].split()):
        assert looks_like_command(words)
        positional, given = read_arguments(find_command(words).arguments)
        said = {item.flag.key: item.value for item in given}
        assert [*positional, *([said["model"]] if "model" in said else [])] == ["m"]
        assert said["tensor_parallel_size"] == 2


@pytest.mark.parametrize("line", ["vllm bench serve m", "docker run nginx", "vllm", "python -m http.server", "vllm 'x"])
def test_a_command_without_a_server_is_one_line(line: str) -> None:
    with pytest.raises(InputError):
        find_command([line])


def test_flags_act_on_what_they_name() -> None:
    asked = settings("--max-model-len", "-1", "--kv-cache-memory-bytes", "8G", "--port", "80", "--enable-lora")
    assert (asked.auto_fit, asked.engine, asked.memory) == (True, {}, {"kv_cache_memory_bytes": 8 << 30})
    assert [flag for flag, _ in asked.ignored] == ["--port"]
    assert [flag for flag, _ in asked.uncounted] == ["--enable-lora"]


@pytest.mark.parametrize("words", [("--enforce-eager",), ("-O0",), ("-cc.cudagraph_mode", "NONE")])
def test_no_graphs_by_any_flag(words: tuple[str, ...]) -> None:
    assert not settings(*words).cuda_graphs


@pytest.mark.parametrize(
    ("config", "off"),
    [
        ('{"kv_connector": "NixlConnector"}', False),
        ('{"kv_connector": "LMCacheConnectorV1"}', True),
        (SEVERAL % "FlexKVConnectorV1", True),
        (SEVERAL % "OffloadingConnector", False),
    ],
)
def test_a_connector_may_turn_the_hybrid_manager_off(config: str, *, off: bool) -> None:
    assert settings("--kv-transfer-config", config).engine.get("disable_hybrid_kv_cache_manager", False) is off
    if off:
        with pytest.raises(RefusalError, match="hybrid manager was asked for"):
            settings("--kv-transfer-config", config, "--enable-hybrid-kv-cache-manager")


def test_drafts_by_any_of_their_flags() -> None:
    wanted = {"speculative_method": "eagle3", "num_speculative_tokens": 3}
    assert settings("--spec-model", "me/x-EAGLE3", "--spec-tokens", "3").engine == wanted
    assert settings("-sc", '{"method": "qwen3_next_mtp", "num-speculative-tokens": 1}').engine == {
        "speculative_method": "mtp",
        "num_speculative_tokens": 1,
    }
    with pytest.raises(RefusalError, match="cannot stand beside"):
        settings("--spec-tokens", "3", "-sc.num_speculative_tokens", "2", "-sc.method", "mtp")
    with pytest.raises(InputError, match="num_speculative_tokens is missing"):
        settings("-sc.method", "mtp")


def test_what_is_not_modelled_is_refused_unless_it_is_the_default() -> None:
    assert settings("-pcp", "1", "--swa-bounded-replay", "--runner", "generate").engine == {}
    for words in (("-pcp", "2"), ("--no-swa-bounded-replay",), ("--runner", "pooling"), ("--use-replayssm",)):
        with pytest.raises(InputError, match="not modelled"):
            settings(*words)


def test_the_environment_counts_too() -> None:
    asked = settings(VLLM_ALLOW_CHUNKED_LOCAL_ATTN_WITH_HYBRID_KV_CACHE="0", VLLM_LOGGING_LEVEL="DEBUG", HOME="x")
    assert asked.engine == {"allow_chunked_local_attn_with_hybrid_kv_cache": False}
    assert asked.notes == ("VLLM_LOGGING_LEVEL is not looked at",)


def test_a_configuration_file_stands_for_flags(tmp_path: Path) -> None:
    path = tmp_path / "vllm.yaml"
    path.write_text(
        "model: m\ntensor-parallel-size: 2\nenable_prefix_caching: false\nenforce-eager: true\nheadless: false\n"
        "served-model-name: [a, b]\nspeculative-config: {method: mtp, num_speculative_tokens: 1}\n"
    )
    assert values(*arguments_of_config(path)) == {
        "model": "m",
        "tensor_parallel_size": 2,
        "enable_prefix_caching": False,
        "enforce_eager": True,
        "served_model_name": ["a", "b"],
        "speculative_config": {"method": "mtp", "num_speculative_tokens": 1},
    }
    assert not is_vllm_config({"model_type": "llama", "seed": 1})
    assert not is_vllm_config(["--model"])
