"""What vLLM 0.33.0 made of published configs, and our answer to the same, in one form: specs, groups, blocks."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from sim.engine_config import EngineConfig, default_budgets
from sim.errors import InputError
from sim.hardware import find_gpu
from sim.models import Model, model_from_config
from sim.planning import (
    KVCacheGroup,
    KVCacheMemoryError,
    KVCachePlan,
    Memory,
    effective_engine,
    layer_specs,
    plan_kv_cache,
    smallest_batch,
)
from sim.specs import KernelBlocks, MambaSpec, Spec

GPUS = {"h100": "H100-80GB", "b200": "B200", "a100": "A100-80GB"}

FLAGS: dict[str, dict[str, Any]] = {
    **{f"tp{ranks}": {"tensor_parallel_size": ranks} for ranks in (1, 2, 4, 8)},
    "noapc": {"enable_prefix_caching": False},
    "fp8": {"kv_cache_dtype": "fp8"},
    "int8ph": {"kv_cache_dtype": "int8_per_token_head"},
    "nohma": {"disable_hybrid_kv_cache_manager": True},
    "bs64": {"block_size": 64},
    "mtp1": {"speculative_method": "mtp", "num_speculative_tokens": 1},
}
KINDS = {
    "full_attention": "full",
    "mla_attention": "mla",
    "sliding_window": "swa",
    "sliding_window_mla": "swa_mla",
    "chunked_local_attention": "chunk",
    "cross_attention": "cross",
    "mamba": "mamba",
}
MEMORY = Memory(kv_cache_memory_bytes=40 << 30)


def entries(folder: Path) -> list[dict[str, Any]]:
    """The lines of ``model_specs.jsonl``, each with its config under ``raw``."""
    lines = (folder / "model_specs.jsonl").read_text(encoding="utf-8").splitlines()
    found = [json.loads(line) for line in lines]
    return [entry | {"raw": json.loads((folder / entry["config"]).read_text(encoding="utf-8"))} for entry in found]


def engine_of(model: Model, variant: str) -> EngineConfig:
    """The flags of a variant such as ``h100_tp2``."""
    gpu, flags = variant.split("_", 1)
    device = find_gpu(GPUS[gpu])
    item = smallest_batch(model, {})
    tokens, _ = default_budgets(device, "server", model.max_model_len, largest_item_tokens=item)
    given = {"enable_prefix_caching": model.prefix_caching_by_default, **FLAGS.get(flags, {})}
    return EngineConfig(
        max_model_len=model.max_model_len,
        max_num_batched_tokens=tokens,
        max_num_seqs=256,
        device_capability=device.capability,
        flashinfer_gdn_prefill=gpu != "a100",
        **given,
    )


def plan_in_40_gib(model: Model, engine: EngineConfig) -> KVCachePlan:
    """The plan in 40 GiB, at the longest max_model_len that vLLM accepts there."""
    try:
        return plan_kv_cache(model, engine, MEMORY)
    except KVCacheMemoryError as refusal:
        return plan_kv_cache(model, replace(engine, max_model_len=refusal.estimated_max_len), MEMORY)


def answer(raw: Any, variant: str) -> dict[str, Any]:
    """Our answer for a config and a variant, in the form the published variants have."""
    try:
        model = model_from_config(raw)
        engine = engine_of(model, variant)
        plan = plan_in_40_gib(model, engine)
    except InputError as error:
        return {"error": str(error)}
    return {
        "block_size": min(group.block_size for group in plan.groups),
        "groups": [described(group) for group in plan.groups],
        "pool_bytes_per_block": plan.block_bytes,
        "layout": effective_engine(model, engine).kv_cache_layout,
        "num_blocks_40GiB": plan.num_blocks,
        "max_concurrency_40GiB": round(plan.max_concurrency, 4),
    }


def described(group: KVCacheGroup) -> list[Any]:
    """A group as ``[layers, label, block size, page bytes]``."""
    return [len(group.layer_names), _label(group), group.block_size, group.page_size_bytes]


def _label(group: KVCacheGroup) -> str:
    if group.uniform_type:
        return "uniform"
    kind, spec = KINDS[group.kind], group.spec
    if isinstance(spec, MambaSpec):
        return f"{kind}/{spec.mamba_type}"
    size = getattr(spec, "sliding_window", None) or getattr(spec, "attention_chunk_size", None)
    return kind if size is None else f"{kind}/{size}"


def layer_runs(entry: dict[str, Any]) -> Iterator[list[Any]]:
    """The published runs of equal layers, ``[tag..., count]``, written out of their repetition."""
    runs = entry["layers_rle"]
    yield from runs["repeat"] * runs["times"] + runs["rest"] if isinstance(runs, dict) else runs


def published_layers(entry: dict[str, Any]) -> list[dict[str, Any]] | None:
    """The published spec of every layer in order; None where two specs have one tag."""
    specs = {str(spec["tag"]): spec for spec in entry["specs"]}
    if len(specs) < len(entry["specs"]):
        return None
    return [specs[str(tag)] for *tag, count in layer_runs(entry) for _ in range(count)]


def our_layers(entry: dict[str, Any]) -> list[Spec]:
    """Our spec of every layer in order, on an H100."""
    model = model_from_config(entry["raw"])
    return list(layer_specs(model, engine_of(model, "h100_tp1")).values())


def same_spec(ours: Spec, theirs: dict[str, Any]) -> list[str]:
    """The fields in which a spec differs from the published one."""
    if isinstance(ours, MambaSpec):
        ours_by_name: dict[str, Any] = {"shapes": [list(shape) for shape in ours.shapes], "dtypes": list(ours.dtypes)}
        names = ["mamba_cache_mode", "num_prefill_checkpoint_blocks", "num_speculative_blocks"]
        ours_by_name |= {"mamba_type": ours.mamba_type.upper(), **{name: getattr(ours, name) for name in names}}
        ours_by_name["prefill_checkpoint_alignment"] = ours.prefill_checkpoint_alignment
    else:
        names = ["num_kv_heads", "head_size", "head_size_v", "tokens_per_state", "sliding_window"]
        names += ["attention_chunk_size", "alignment", "topk_buffer_width"]
        ours_by_name = {name: getattr(ours, name, None) for name in names}
        ours_by_name["block_stride_alignment"] = _stride(ours)
        ours_by_name["is_index_group_leader"] = getattr(ours, "is_index_group_leader", False)
    ours_by_name |= {
        "kind": type(ours).__name__,
        "page_size_bytes": ours.page_size_bytes,
        "block_size": ours.block_size,
    }
    defaults = {"tokens_per_state": 1, "is_index_group_leader": False}
    return [
        f"{name}: {value} instead of {theirs.get(name, defaults.get(name))}"
        for name, value in ours_by_name.items()
        if value != theirs.get(name, defaults.get(name))
    ]


def _stride(spec: Spec) -> int | str | None:
    alignment = spec.block_stride_alignment
    return f"MultipleOf({alignment.tokens})" if isinstance(alignment, KernelBlocks) else alignment
