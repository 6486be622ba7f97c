"""The planner on the layers vLLM built for some 150 real models: groups, blocks and concurrency as published."""

from __future__ import annotations

import json
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest

from sim.engine_config import EngineConfig
from sim.planning import KVCacheMemoryError, KVCachePlan, Memory, plan_layers
from sim.specs import (
    ChunkedLocalAttentionSpec,
    CrossAttentionSpec,
    FullAttentionSpec,
    KernelBlocks,
    MambaSpec,
    MLAAttentionSpec,
    SlidingWindowSpec,
    Spec,
)

CLASSES: dict[str, type[Spec]] = {
    spec.__name__: spec
    for spec in (
        FullAttentionSpec,
        SlidingWindowSpec,
        ChunkedLocalAttentionSpec,
        MLAAttentionSpec,
        CrossAttentionSpec,
        MambaSpec,
    )
}


def rows(path: Path) -> list[dict[str, Any]]:
    """The models that have a plan and whose layers can be told apart by their tags."""
    entries = map(json.loads, (path / "model_specs.jsonl").read_text(encoding="utf-8").splitlines())
    supported = [entry for entry in entries if entry["supported"] and entry.get("plan_40GiB")]
    return [entry for entry in supported if len({str(spec["tag"]) for spec in entry["specs"]}) == len(entry["specs"])]


def spec_of(entry: dict[str, Any]) -> Spec:
    """Our spec of a published one."""
    made = CLASSES[entry["kind"]]
    names = {field.name for field in fields(made)} - {"mamba_type", "kind", "tokens_per_state"}
    given = {name: value for name, value in entry.items() if name in names}
    alignment = given.get("block_stride_alignment")
    if isinstance(alignment, str):
        given["block_stride_alignment"] = KernelBlocks(int(alignment.removeprefix("MultipleOf(").rstrip(")")))
    if "cache_role" in given:
        given["cache_role"] = given["cache_role"].lower()
    if made is MambaSpec:
        given |= {"shapes": tuple(map(tuple, entry["shapes"])), "dtypes": tuple(entry["dtypes"])}
    elif "state_content_bytes" in entry:
        given["state_bytes"] = entry["state_content_bytes"]
    return made(**given)


def layers_of(entry: dict[str, Any]) -> dict[str, Spec]:
    """All layers, written out of their run lengths."""
    runs = entry["layers_rle"]
    if isinstance(runs, dict):
        runs = runs["repeat"] * runs["times"] + runs["rest"]
    specs = {str(spec["tag"]): spec_of(spec) for spec in entry["specs"]}
    order = [specs[str(tag)] for *tag, count in runs for _ in range(count)]
    return {f"layers.{position}": spec for position, spec in enumerate(order)}


def plan_of(entry: dict[str, Any], layers: dict[str, Spec]) -> KVCachePlan:
    """The plan in 40 GiB, at the longest max_model_len that vLLM accepts."""
    published = entry["plan_40GiB"]
    tokens = published["max_num_batched_tokens"]
    engine = EngineConfig(
        max_model_len=published.get("auto_fit_max_model_len", entry["max_model_len"]),
        max_num_batched_tokens=tokens,
        max_num_seqs=256,
        enable_prefix_caching=entry["prefix_caching"],
        async_scheduling=published["max_in_flight_tokens"] > tokens,
        kv_cache_layout=entry["layout"],
    )
    memory = Memory(kv_cache_memory_bytes=published["mem_bytes"])
    if engine.max_model_len < entry["max_model_len"]:
        with pytest.raises(KVCacheMemoryError) as caught:
            plan_layers(layers, replace(engine, max_model_len=entry["max_model_len"]), memory)
        assert caught.value.estimated_max_len == engine.max_model_len
    return plan_layers(layers, engine, memory)


def test_every_published_layer_set(shared_data: Path) -> None:
    entries = rows(shared_data)
    assert len(entries) > 130
    for entry in entries:
        plan = plan_of(entry, layers_of(entry))
        published = entry["plan_40GiB"]
        assert [len(group.layer_names) for group in plan.groups] == [group["n_layers"] for group in entry["groups"]]
        assert [group.block_size for group in plan.groups] == [group["block_size"] for group in entry["groups"]]
        assert plan.block_bytes == entry["pool_bytes_per_block"], entry["name"]
        assert list(plan.admission_blocks) == published["blocks_per_request_at_max_len"], entry["name"]
        names = ["num_blocks", "kv_cache_size_tokens"]
        if entry["prefix_caching"]:  # nobody reads them otherwise
            names += ["scheduler_block_size", "hash_block_size", "cache_hit_alignment_tokens"]
        for name in names:
            assert getattr(plan, name) == published[name], f"{entry['name']}: {name}"
        assert plan.max_concurrency == pytest.approx(published["max_concurrency"], abs=5e-5), entry["name"]
