"""The plan against what vLLM answered elsewhere: its planner on whole models, and startup lines from the field."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sim.engine_config import EngineConfig, default_budgets
from sim.errors import RefusalError
from sim.hardware import find_gpu
from sim.models import Model, load_model
from sim.planning import KVCacheGroup, KVCacheMemoryError, KVCachePlan, Memory, plan_kv_cache
from sim.units import GIB

MODELS = {
    "gemma-3-27b-it": "gemma-3-27b",
    "gemma-3-12b-it": "gemma-3-12b",
    "gemma-3-4b-it": "gemma-3-4b",
    "gemma-3-1b-it": "gemma-3-1b",
    "gemma-2-27b": "gemma-2-27b",
    "gpt-oss-20b": "gpt-oss-20b",
    "gpt-oss-120b": "gpt-oss-120b",
    "Llama-3.1-8B": "llama-3.1-8b",
    "Llama-3.1-70B": "llama-3.1-70b",
    "Mistral-7B-v0.1": "mistral-7b-v0.1",
    "Qwen3-14B": "qwen3-14b",
    "Qwen3-32B": "qwen3-32b",
    "Olmo-3-32B": "olmo-3-32b",
    "c4ai-command-a-03-2025": "command-a",
    "Llama-4-Scout-17B-16E-Instruct": "llama-4-scout",
    "Qwen3-Next-80B-A3B": "qwen3-next-80b-a3b",
    "Qwen3.5-27B": "qwen3.5-27b",
    "Nemotron-3-Nano-30B-A3B": "nemotron-3-nano-30b-a3b",
    "Nemotron-H-56B-Base-8K": "nemotron-h-56b",
    "granite-4.0-h-small": "granite-4.0-h-small",
    "Falcon-H1-7B": "falcon-h1-7b",
    "Jamba-v0.1": "jamba-v0.1",
    "Kimi-Linear-48B-A3B": "kimi-linear-48b-a3b",
    "GLM-4.7-Flash": "glm-4.7-flash",
    "DeepSeek-V3.2": "deepseek-v3.2",
    "DeepSeek-V4-Flash": "deepseek-v4-flash",
    "gemma-4-31B-it": "gemma-4-31b",
    "LFM2-1.2B": "lfm2-1.2b",
    "whisper-large-v3": "whisper-large-v3",
}
VARIANTS: dict[str, dict[str, Any]] = {
    "h100_tp2": {"tensor_parallel_size": 2},
    "h100_tp4": {"tensor_parallel_size": 4},
    "h100_tp8": {"tensor_parallel_size": 8},
    "h100_noapc": {"enable_prefix_caching": False},
    "h100_fp8": {"kv_cache_dtype": "fp8"},
    "h100_int8ph": {"kv_cache_dtype": "int8_per_token_head"},
    "h100_nohma": {"disable_hybrid_kv_cache_manager": True},
    "h100_bs64": {"block_size": 64},
    "h100_mtp1": {"speculative_method": "mtp", "num_speculative_tokens": 1},
    "b200_tp1": {},
    "a100_tp1": {},
}
GPUS = {"h100": "H100-80GB", "b200": "B200-180GB", "a100": "A100-80GB"}


def tag(group: KVCacheGroup) -> str:
    """A group as the published file writes it: full, full/128, swa/128, chunk/8192, mamba/gdn_attn, uniform."""
    if group.uniform_type:
        return "uniform"
    spec: Any = group.spec
    if group.kind == "mamba":
        return f"mamba/{spec.mamba_type}"
    if group.kind == "chunked_local_attention":
        return f"chunk/{group.chunk_size}"
    kind = {"sliding_window": "swa", "cross_attention": "cross", "mla_attention": "mla"}.get(group.kind, "full")
    notes = [
        note for note in (getattr(spec, "sliding_window", None), getattr(spec, "attention_chunk_size", None)) if note
    ]
    return "/".join(map(str, [kind, *notes]))


def rows(groups: tuple[KVCacheGroup, ...]) -> list[list[Any]]:
    """Groups as the published file writes them."""
    return [[len(group.layer_names), tag(group), group.block_size, group.page_size_bytes] for group in groups]


def published(group: dict[str, Any]) -> list[Any]:
    """A group of the file in the form of ``rows``."""
    name = group["spec"] if isinstance(group["spec"], str) else "/".join(map(str, group["spec"]))
    page = group["group_page_bytes"] if name == "uniform" else group["page_bytes"]
    return [group["n_layers"], name, group["block_size"], page]


def plan_of(model: Model, gpu: str, **flags: Any) -> KVCachePlan:
    """The plan in 40 GiB at the GPU's default budgets, at the longest max_model_len that vLLM accepts."""
    tokens, seqs = default_budgets(find_gpu(gpu), "server", model.max_model_len)
    flags = {
        "enable_prefix_caching": model.prefix_caching_by_default,
        "flashinfer_gdn_prefill": gpu[:4] != "A100",
        **flags,
    }
    engine = EngineConfig(max_model_len=model.max_model_len, max_num_batched_tokens=tokens, max_num_seqs=seqs, **flags)
    memory = Memory(available_kv_cache_memory_gib=40)
    try:
        return plan_kv_cache(model, engine, memory)
    except KVCacheMemoryError as refusal:
        return plan_kv_cache(model, replace(engine, max_model_len=refusal.estimated_max_len), memory)


@pytest.mark.parametrize("name", MODELS)
def test_whole_models(name: str, shared_data: Path) -> None:
    lines = (shared_data / "model_specs.jsonl").read_text(encoding="utf-8").splitlines()
    known = next(entry for entry in map(json.loads, lines) if entry["name"] == name)
    model = replace(load_model(MODELS[name]), max_model_len=known["max_model_len"])
    plan = plan_of(model, "H100-80GB")
    expected = known["plan_40GiB"]
    assert rows(plan.groups) == [published(group) for group in known["groups"]]
    assert plan.block_bytes == known["pool_bytes_per_block"]
    assert plan.padding_layers == known["padding_layers"] or model.kv_cache_layout == "BLHNC"  # packed, not padded
    assert list(plan.admission_blocks) == expected["blocks_per_request_at_max_len"]
    sizes = ("scheduler_block_size", "hash_block_size", "cache_hit_alignment_tokens")
    for key in ("num_blocks", "kv_cache_size_tokens", *sizes):
        assert getattr(plan, key) == expected[key]
    assert plan.max_concurrency == pytest.approx(expected["max_concurrency"], abs=5e-5)
    assert plan.max_model_len == expected.get("auto_fit_max_model_len", model.max_model_len)


@pytest.mark.parametrize("name", MODELS)
def test_whole_models_under_other_flags(name: str, shared_data: Path) -> None:
    lines = (shared_data / "model_specs.jsonl").read_text(encoding="utf-8").splitlines()
    known = next(entry for entry in map(json.loads, lines) if entry["name"] == name)
    model = replace(load_model(MODELS[name]), max_model_len=known["max_model_len"])
    for variant, expected in known["variants"].items():
        if (name, variant) == ("gemma-4-31B-it", "a100_tp1"):  # its videos raise the small GPU's token budget
            continue
        gpu = GPUS[variant.partition("_")[0]]
        if "error" in expected:
            if (
                "attention backend" not in expected["error"] and "layout only" not in expected["error"]
            ):  # no kernels here
                known_text = r"does not divide the .* attention heads|managed as one kind|TypeError"
                with pytest.raises(RefusalError, match=known_text):
                    plan_of(model, gpu, **VARIANTS[variant])
            continue
        given = {} if "mamba" in str(expected["groups"]) else {"block_size": expected["block_size"]}
        plan = plan_of(model, gpu, **given | VARIANTS[variant])
        assert rows(plan.groups) == expected["groups"], variant
        assert plan.block_bytes == expected["pool_bytes_per_block"], variant
        assert plan.num_blocks == expected["num_blocks_40GiB"], variant
        assert plan.max_concurrency == pytest.approx(expected["max_concurrency_40GiB"], abs=5e-5), variant


@pytest.mark.parametrize(
    ("name", "flags", "gib", "tokens", "concurrency"),
    [
        # vLLM 0.22 counted one batch in flight: as 0.33 does without async scheduling.
        ("gpt-oss-120b", {"max_model_len": 2068, "async_scheduling": False}, 57.22, 825_377, 399.12),
        ("gpt-oss-120b", {"max_model_len": 2068, "async_scheduling": False}, 57.24, 825_607, 399.23),
        ("gpt-oss-120b", {"max_model_len": 9472, "async_scheduling": False}, 57.22, 886_521, 93.59),
        ("gpt-oss-120b", {"max_model_len": 9472, "async_scheduling": False}, 57.24, 886_768, 93.62),
        ("gemma-3-4b", {"max_model_len": 8192, "max_num_batched_tokens": 16384}, 162.84, 1_217_591, 148.63),
        (
            "gemma-3-27b",
            {"max_model_len": 65536, "max_num_batched_tokens": 2048, "kv_cache_dtype": "fp8_e4m3"},
            10.56,
            188_347,
            2.87,
        ),
        ("llama-3.1-8b", {"max_model_len": 131072}, 53.71, 439_984, 3.36),
        ("llama-3.1-70b", {"max_model_len": 131072, "tensor_parallel_size": 4}, 32.06, 420_208, 3.21),
        ("qwen3-32b", {"max_model_len": 40960, "tensor_parallel_size": 2}, 33.66, 275_760, 6.73),
    ],
)
def test_startup_lines(name: str, flags: dict[str, Any], gib: float, tokens: int, concurrency: float) -> None:
    """The log rounds the memory to 0.01 GiB; one number of blocks in that range prints both numbers."""
    engine = EngineConfig(**{"max_num_batched_tokens": 8192, "max_num_seqs": 64} | flags)
    model = load_model(name)
    block_bytes = plan_kv_cache(model, engine, Memory(available_kv_cache_memory_gib=gib)).block_bytes
    fewest, most = (int((gib + rest) * GIB) // block_bytes for rest in (-0.005, 0.005))
    printed = set()
    for blocks in range(fewest, most + 1):
        plan = plan_kv_cache(model, engine, Memory(num_gpu_blocks_override=blocks))
        printed.add((plan.kv_cache_size_tokens, round(plan.max_concurrency, 2)))
    assert (tokens, concurrency) in printed


def test_a_line_without_its_memory() -> None:
    engine = EngineConfig(max_model_len=32768, max_num_batched_tokens=2048, max_num_seqs=256)
    plan = plan_kv_cache(load_model("gpt-oss-20b"), engine, Memory(num_gpu_blocks_override=138_963))
    assert (plan.kv_cache_size_tokens, round(plan.max_concurrency, 2)) == (1_968_672, 60.08)
