"""Groups, block sizes, blocks and refusals, on layers small enough to check by hand."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from sim.engine_config import EngineConfig
from sim.errors import InputError, RefusalError
from sim.models import Model, load_model, model_from_mapping
from sim.planning import (
    KVCacheGroup,
    KVCacheMemoryError,
    Memory,
    get_kv_cache_groups,
    joint_groups,
    plan_kv_cache,
    plan_layers,
    resolve_block_sizes,
)
from sim.planning.grouping import group_size
from sim.planning.layers import layer_specs
from sim.planning.stages import layers_per_stage
from sim.specs import FullAttentionSpec, SlidingWindowSpec, Spec

FULL = FullAttentionSpec(16, 2, 64, "bfloat16")
WINDOW = SlidingWindowSpec(16, 2, 64, "bfloat16", sliding_window=32)
PAGE = 8192


def layers(*specs: Spec, times: int = 1) -> dict[str, Spec]:
    """Layers called 0, 1, 2, ... of these specs, the whole pattern ``times`` over."""
    return {str(position): spec for position, spec in enumerate(specs * times)}


def names(groups: tuple[KVCacheGroup, ...]) -> list[str]:
    """The layers of each group, as one word."""
    return ["".join(group.layer_names) for group in groups]


def engine(**flags: Any) -> EngineConfig:
    """Flags for a request of at most 1,024 tokens, one batch of 64 in flight, unless given otherwise."""
    given = {"max_model_len": 1024, "max_num_batched_tokens": 64, "max_num_seqs": 8, "async_scheduling": False, **flags}
    return EngineConfig(**given)


def toy() -> Model:
    """10 full layers and 20 with a window of 32, windows first."""
    kinds = [{"kind": "sliding_window", "count": 20, "window": 32}, {"kind": "full", "count": 10}]
    return model_from_mapping({"layers": kinds, "num_kv_heads": 2, "head_size": 64, "max_model_len": 4096})


def test_one_spec_is_one_group() -> None:
    (group,) = get_kv_cache_groups(layers(WINDOW, WINDOW, WINDOW))
    assert (group.kind, group.window, group.padding_layers, group.layer_bytes) == ("sliding_window", 32, 0, 3 * PAGE)


def test_no_layers_no_groups() -> None:
    assert get_kv_cache_groups({}) == ()
    assert get_kv_cache_groups({}, disable_hybrid_kv_cache_manager=True) == ()


def test_one_type_of_several_sizes_is_one_group() -> None:
    (group,) = get_kv_cache_groups(layers(FULL, replace(FULL, num_kv_heads=4), replace(FULL, dtype="fp8")))
    assert group.uniform_type
    assert group.spec == FULL
    assert group.page_size_bytes == group.layer_bytes == PAGE + 2 * PAGE + PAGE // 2


def test_layers_are_dealt_out_to_groups_like_cards() -> None:
    groups = get_kv_cache_groups(layers(FULL, WINDOW, WINDOW, WINDOW, WINDOW, times=2))
    assert names(groups) == ["05", "16", "27", "38", "49"]
    assert [group.kind for group in groups] == ["full_attention"] + ["sliding_window"] * 4


def test_short_groups_are_padded() -> None:
    groups = get_kv_cache_groups(layers(*(WINDOW,) * 7, *(FULL,) * 3))
    assert names(groups) == ["036", "14", "25", "789"]
    assert [group.padding_layers for group in groups] == [0, 1, 1, 0]


def test_gemma_3_27b() -> None:
    plan = plan_kv_cache(
        load_model("gemma-3-27b"),
        EngineConfig(max_model_len=131072, max_num_batched_tokens=8192, max_num_seqs=1024),
        Memory(kv_cache_memory_bytes=40 << 30),
    )
    assert [len(group.layer_names) for group in plan.groups] == [9, 9, 9, 9, 8, 8, 10]
    assert [group.padding_layers for group in plan.groups] == [1, 1, 1, 1, 2, 2, 0]
    assert plan.groups[0].layer_names[:3] == ("layers.0", "layers.7", "layers.14")
    assert (plan.block_bytes, plan.num_blocks, plan.padding_layers) == (1310720, 32768, 8)
    assert plan.admission_blocks == (1089,) * 6 + (8192,)
    assert (plan.kv_cache_size_tokens, plan.max_concurrency) == (291658, 32768 / 14726)
    assert plan.spec_groups == ((6,), (0, 1, 2, 3, 4, 5))
    assert (plan.scheduler_block_size, plan.hash_block_size, plan.max_in_flight_tokens) == (16, 16, 16384)


@pytest.mark.parametrize(
    ("buckets", "size"), [([12, 13], 13), ([10, 15], 10), ([10, 14], 14), ([4], 4), ([3, 9, 4], 3)]
)
def test_group_size(buckets: list[int], size: int) -> None:
    assert group_size(buckets) == size


def test_full_layers_with_a_noted_window_join_the_others() -> None:
    noted = replace(FULL, sliding_window=128)
    groups = get_kv_cache_groups(layers(FULL, WINDOW, noted, WINDOW))
    assert names(groups) == ["02", "13"]
    assert groups[0].spec == noted
    assert groups[0].window is None


def test_smaller_pages_hold_more_tokens_when_they_divide() -> None:
    groups = get_kv_cache_groups(layers(FULL, replace(WINDOW, num_kv_heads=1)))
    assert [group.block_size for group in groups] == [16, 32]
    assert [group.page_size_bytes for group in groups] == [PAGE, PAGE]
    assert resolve_block_sizes(groups) == (32, 16)
    assert resolve_block_sizes(groups, enable_prefix_caching=False) == (32, 32)


def test_smaller_pages_are_padded_when_they_do_not_divide() -> None:
    groups = get_kv_cache_groups(layers(FULL, replace(WINDOW, head_size_v=32)))
    assert [group.spec.page_size_padded for group in groups] == [None, PAGE]
    assert [group.block_size for group in groups] == [16, 16]


def test_without_the_hybrid_manager_windows_keep_every_token() -> None:
    (group,) = get_kv_cache_groups(layers(WINDOW, FULL), disable_hybrid_kv_cache_manager=True)
    assert group.spec == replace(FULL, sliding_window=32)
    assert (group.kind, group.window) == ("full_attention", None)


def test_without_full_attention_there_is_nothing_to_become() -> None:
    (group,) = get_kv_cache_groups(layers(WINDOW, WINDOW), disable_hybrid_kv_cache_manager=True)
    assert group.spec == WINDOW


def test_a_promoted_layer_takes_the_full_layers_block_size() -> None:
    small = replace(WINDOW, block_size=8, page_size_padded=5000)
    (group,) = get_kv_cache_groups(layers(FULL, small), disable_hybrid_kv_cache_manager=True)
    assert [(spec.block_size, spec.page_size_bytes) for spec in group.layer_specs] == [(16, PAGE), (16, PAGE)]


@pytest.mark.parametrize(
    "specs",
    [
        (WINDOW, replace(WINDOW, sliding_window=64)),  # two windows, nothing full
        (FULL, replace(FULL, block_size=32), WINDOW),  # block sizes differ
        (FULL, WINDOW, replace(WINDOW, sliding_window=64)),  # two notes of windows
    ],
)
def test_layers_that_cannot_become_one_kind_are_refused(specs: tuple[Spec, ...]) -> None:
    with pytest.raises(RefusalError, match=r"^engine\.disable_hybrid_kv_cache_manager: .* vLLM refuses to start"):
        get_kv_cache_groups(layers(*specs), disable_hybrid_kv_cache_manager=True)


def test_joint_look_up_needs_equal_specs() -> None:
    groups = get_kv_cache_groups(layers(WINDOW, FULL, replace(WINDOW, sliding_window=64), WINDOW, times=2))
    assert names(groups) == ["04", "37", "15", "26"]
    assert joint_groups(groups) == ((2,), (0, 1), (3,))


def test_the_null_block_is_not_for_requests() -> None:
    with pytest.raises(KVCacheMemoryError) as caught:
        plan_kv_cache(toy(), engine(), Memory(num_gpu_blocks_override=78))
    refusal = caught.value
    block = 10 * PAGE
    assert refusal.needed_bytes == block * (
        64 + 7 + 7
    )  # a window's 31 tokens and a chunk of 64: 6 blocks, and one more
    assert refusal.available_bytes == block * 77
    assert refusal.estimated_max_len == 1008
    assert plan_kv_cache(toy(), engine(), Memory(num_gpu_blocks_override=79)).num_blocks == 79


def test_the_text_of_a_refusal() -> None:
    with pytest.raises(KVCacheMemoryError) as caught:
        plan_kv_cache(toy(), engine(), Memory(available_kv_cache_memory_gib=0.004))
    assert str(caught.value) == (
        "memory: one request of max_model_len (1024) tokens needs 0.01 GiB of KV cache, 0.0 GiB are available; the"
        " longest that fits is 592 tokens: vLLM refuses to start; give more memory or lower max_model_len"
    )


def test_not_even_the_null_block_fits() -> None:
    with pytest.raises(RefusalError, match="memory: no memory for KV cache blocks: one block takes 81920 bytes"):
        plan_kv_cache(toy(), engine(), Memory(kv_cache_memory_bytes=81920))


def test_memory_in_three_ways() -> None:
    ways = (Memory(num_gpu_blocks_override=13107), Memory(kv_cache_memory_bytes=1 << 30), Memory(None, None, 1.0))
    assert [plan_kv_cache(toy(), engine(), memory).num_blocks for memory in ways] == [13107] * 3


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({}, "memory: exactly one of num_gpu_blocks_override, .* must be given, got none"),
        ({"num_gpu_blocks_override": 5, "kv_cache_memory_bytes": 5}, "got num_gpu_blocks_override and kv_cache"),
        ({"num_gpu_blocks_override": 0}, "memory.num_gpu_blocks_override: must be an integer above 0"),
        ({"num_gpu_blocks_override": 5.0}, "memory.num_gpu_blocks_override: must be an integer above 0"),
        ({"kv_cache_memory_bytes": 1 << 70}, "memory.kv_cache_memory_bytes: must be an integer above 0 and at most"),
        ({"available_kv_cache_memory_gib": float("nan")}, "memory.available_kv_cache_memory_gib: must be a number"),
        ({"available_kv_cache_memory_gib": True}, "memory.available_kv_cache_memory_gib: must be a number"),
    ],
)
def test_bad_memory(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        Memory(**fields)


def test_pipeline_stages() -> None:
    assert [layers_per_stage(62, stages) for stages in (1, 2, 4)] == [[62], [31, 31], [15, 16, 16, 15]]
    plan = plan_layers(layers(WINDOW, FULL, times=3), engine(pipeline_parallel_size=4), Memory(None, 1 << 24))
    # The stages hold layers 0 | 1 2 | 3 4 | 5, none of them two layers of one group.
    assert plan.block_bytes == PAGE
    assert plan.num_blocks == (1 << 24) // PAGE
    assert names(plan.groups) == ["024", "135"]


def test_the_fullest_stage_counts() -> None:
    plan = plan_layers(layers(FULL, FULL, FULL), engine(pipeline_parallel_size=2), Memory(None, 1 << 24))
    assert (plan.block_bytes, plan.num_blocks) == (2 * PAGE, 1024)


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ({"max_model_len": 4097}, "engine.max_model_len: 4097 is more than the 4096 tokens inline was made for"),
        (
            {"tensor_parallel_size": 3},
            "engine.tensor_parallel_size: 3 ranks can neither share nor replicate 2 KV heads",
        ),
        ({"pipeline_parallel_size": 31}, "engine.pipeline_parallel_size: 31 stages for 30 layers leave a stage empty"),
        ({"kv_cache_dtype": "float16"}, "engine.kv_cache_dtype: float16 contradicts the model's dtype bfloat16"),
        ({"prefix_cache_retention_interval": 24}, "engine.prefix_cache_retention_interval: 24 is no multiple of"),
    ],
)
def test_refusals(flags: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError) as caught:
        plan_kv_cache(toy(), engine(**flags), Memory(num_gpu_blocks_override=1000))
    assert str(caught.value).startswith(message)


def test_attention_heads_that_ranks_do_not_divide() -> None:
    with pytest.raises(RefusalError, match=r"3 does not divide the 32 attention heads of llama-3\.1-8b"):
        plan_kv_cache(load_model("llama-3.1-8b"), engine(tensor_parallel_size=3), Memory(num_gpu_blocks_override=1000))


def test_a_retention_interval_needs_a_window() -> None:
    flags = engine(prefix_cache_retention_interval=32)
    with pytest.raises(RefusalError, match="32 has nothing to act on"):
        plan_kv_cache(load_model("llama-3.1-8b"), flags, Memory(num_gpu_blocks_override=1000))
    assert plan_kv_cache(toy(), flags, Memory(num_gpu_blocks_override=1000)).scheduler_block_size == 16


def test_heads_are_replicated_beyond_one_per_rank() -> None:
    pages = [
        plan_kv_cache(toy(), engine(tensor_parallel_size=ranks), Memory(num_gpu_blocks_override=1000)).block_bytes
        for ranks in (1, 2, 4)
    ]
    assert pages == [10 * PAGE, 5 * PAGE, 5 * PAGE]


def test_layers_that_store_the_same_share_one_spec() -> None:
    """A search over thousands of settings makes each kind once; a layer left unquantized is another."""
    flags: dict[str, Any] = {"max_model_len": 4096, "max_num_batched_tokens": 8192, "max_num_seqs": 8}
    model = load_model("gemma-2-27b")
    made = list(layer_specs(model, EngineConfig(**flags)).values())
    assert len(made) == 46
    assert len({id(spec) for spec in made}) == 2
    skipped = layer_specs(model, EngineConfig(**flags, kv_cache_dtype="fp8", kv_cache_dtype_skip_layers=("1",)))
    assert [getattr(spec, "dtype", "") for spec in skipped.values()].count("bfloat16") == 1
