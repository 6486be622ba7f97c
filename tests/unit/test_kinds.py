"""Pages, charges, groups and blocks of the kinds beyond full attention and windows."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from sim.capacity import request_blocks
from sim.engine_config import EngineConfig
from sim.errors import InputError, RefusalError
from sim.models import Model, load_model, model_from_mapping
from sim.planning import Memory, get_kv_cache_groups, layer_specs, plan_kv_cache, resolve_block_sizes, stage_names
from sim.planning.block_sizes import wants_fine_hits
from sim.specs import (
    ChunkedLocalAttentionSpec,
    CircularBufferSpec,
    FullAttentionSpec,
    HiddenStateCacheSpec,
    KernelBlocks,
    MambaSpec,
    MLAAttentionSpec,
    RSWASpec,
    SinkFullAttentionSpec,
    SlidingWindowMLASpec,
    SlidingWindowSpec,
    Spec,
    merge_specs,
)

FULL = FullAttentionSpec(16, 2, 64, "bfloat16")
PAGE = 8192
STATE = MambaSpec(16, shapes=((3, 512), (8, 16, 16)), dtypes=("bfloat16", "float32"), mamba_cache_mode="align")
LATENT = MLAAttentionSpec(64, 1, 576, "bfloat16")
CHUNKED = ChunkedLocalAttentionSpec(16, 2, 64, "bfloat16", attention_chunk_size=64)


def layers(*specs: Spec) -> dict[str, Spec]:
    """Layers called 0, 1, 2, ... of these specs."""
    return {str(position): spec for position, spec in enumerate(specs)}


def engine(**flags: Any) -> EngineConfig:
    """Flags for a request of at most 4,096 tokens."""
    return EngineConfig(**{"max_model_len": 4096, "max_num_batched_tokens": 1024, "max_num_seqs": 8, **flags})


def hybrid(**keys: Any) -> Model:
    """Three states and one attention layer, four times over."""
    state = {"kind": "mamba", "count": 3, "state_shapes": [[3, 8192], [32, 128, 128]], **keys}
    mapping = {"layers": [state, {"kind": "full"}], "repeat": 4, "num_kv_heads": 2, "head_size": 256}
    return model_from_mapping({**mapping, "max_model_len": 65536})


@pytest.mark.parametrize(
    ("spec", "page"),
    [
        (LATENT, 73728),  # DeepSeek: 64 tokens of 512 + 64 numbers
        (replace(LATENT, dtype="fp8_ds_mla"), 41984),  # 656 bytes a token
        (MLAAttentionSpec(64, 1, 132, "uint8", cache_role="indexer"), 8448),
        (MLAAttentionSpec(256, 1, 584, "uint8", tokens_per_state=4, alignment=576), 37440),  # 37,376 rounded up
        (SlidingWindowMLASpec(64, 1, 584, "uint8", sliding_window=128, alignment=576), 37440),
        (STATE, 3 * 512 * 2 + 8 * 16 * 16 * 4),
        (replace(STATE, block_size=4096), 11264),
        (CHUNKED, PAGE),
    ],
)
def test_pages(spec: Spec, page: int) -> None:
    assert spec.page_size_bytes == page


def test_what_merges_is_decided_by_the_first() -> None:
    rswa = RSWASpec(16, 2, 64, "bfloat16", rswa_window=64)
    assert merge_specs([FULL, rswa]) == FULL
    assert merge_specs([rswa, FULL]) is None
    assert merge_specs([rswa, replace(rswa, rswa_window=32)]) is None
    assert merge_specs([LATENT, replace(LATENT, cache_role="indexer")]) is None
    assert merge_specs([STATE, replace(STATE, page_size_padded=65536)]) is None


def test_kernel_blocks_align_what_is_larger_than_one() -> None:
    padded = replace(FULL, page_size_padded=9000, block_stride_alignment=KernelBlocks(8))
    assert (padded.stride_alignment_bytes, replace(FULL, block_stride_alignment=512).stride_bytes) == (9000, PAGE)
    assert replace(FULL, block_stride_alignment=KernelBlocks(16)).stride_alignment_bytes == 1
    assert replace(FULL, block_stride_alignment=KernelBlocks(8)).stride_alignment_bytes == PAGE // 2


def test_indexer_and_latent_vectors_are_one_group_of_two_sizes() -> None:
    indexer = MLAAttentionSpec(64, 1, 132, "uint8", cache_role="indexer")
    (group,) = get_kv_cache_groups(layers(indexer, LATENT, indexer, LATENT))
    assert (group.uniform_type, group.layer_bytes) == (True, 2 * (8448 + 73728))


def test_a_state_is_padded_to_the_attention_page() -> None:
    groups = get_kv_cache_groups(layers(replace(STATE, shapes=((2,), (2,))), FULL))
    assert [(group.kind, group.block_size, group.page_size_bytes) for group in groups] == [
        ("mamba", 16, PAGE),
        ("full_attention", 16, PAGE),
    ]


def test_latent_vectors_beside_windows_that_do_not_fit_keep_every_token() -> None:
    window = SlidingWindowSpec(64, 2, 320, "bfloat16", sliding_window=128)
    (group,) = get_kv_cache_groups(layers(LATENT, window))
    assert [spec.kind for spec in group.layer_specs] == ["mla_attention", "full_attention"]


def test_latent_vectors_beside_states_that_do_not_fit_are_refused() -> None:
    large = replace(STATE, shapes=((3, 50_000), (8, 16, 16)))
    with pytest.raises(RefusalError, match=r"model\.layers: the page of layer 0 .* does not divide it"):
        get_kv_cache_groups(layers(LATENT, large))


def test_hidden_states_have_groups_of_their_own() -> None:
    hidden = HiddenStateCacheSpec(16, 1, 640, "bfloat16")
    groups = get_kv_cache_groups(layers(FULL, CHUNKED, hidden))
    assert [(group.kind, group.block_size, group.page_size_bytes) for group in groups] == [
        ("full_attention", 16, PAGE),
        ("chunked_local_attention", 16, PAGE),
        ("hidden_state", 4, PAGE),
    ]


@pytest.mark.parametrize("spec", [STATE, CircularBufferSpec(16, 2, 64, "bfloat16")])
def test_without_the_hybrid_manager_states_and_rings_have_no_place(spec: Spec) -> None:
    with pytest.raises(RefusalError, match="cannot be managed as one kind"):
        get_kv_cache_groups(layers(FULL, spec), disable_hybrid_kv_cache_manager=True)


def test_without_the_hybrid_manager_chunks_become_a_note() -> None:
    (group,) = get_kv_cache_groups(layers(FULL, CHUNKED), disable_hybrid_kv_cache_manager=True)
    assert group.spec == replace(FULL, attention_chunk_size=64)


def test_block_sizes_of_groups_that_are_hashed_and_of_others() -> None:
    states = replace(STATE, block_size=64, page_size_padded=PAGE)
    ring = CircularBufferSpec(6, 1, 64, "bfloat16", page_size_padded=PAGE)
    groups = get_kv_cache_groups(layers(FULL, states, ring))
    assert resolve_block_sizes(groups) == (192, 16)
    assert resolve_block_sizes(groups, prefix_match_unit=8) == (192, 8)
    assert wants_fine_hits(groups, 16)
    with pytest.raises(RefusalError, match=r"engine\.prefix_match_unit: 12 cannot be"):
        resolve_block_sizes(groups, prefix_match_unit=12)
    one_state = get_kv_cache_groups(layers(FULL, replace(states, mamba_cache_mode="none")))
    assert resolve_block_sizes(one_state) == (64, 64)


def test_the_attention_block_grows_to_hold_a_state() -> None:
    plan = plan_kv_cache(hybrid(), engine(), Memory(num_gpu_blocks_override=100))
    assert [(group.kind, group.block_size) for group in plan.groups] == [("mamba", 544)] * 3 + [("full_attention", 544)]
    assert {group.page_size_bytes for group in plan.groups} == {544 * 2048}
    assert plan.admission_blocks == (2, 2, 2, 8)
    assert plan.admission_caps == (None,) * 4


def test_a_finer_match_unit_lets_hits_end_inside_a_block() -> None:
    plan = plan_kv_cache(hybrid(), engine(prefix_match_unit=32), Memory(num_gpu_blocks_override=100))
    assert (plan.scheduler_block_size, plan.hash_block_size) == (544, 32)
    assert (plan.enable_partial_hash_hits, plan.cache_hit_alignment_tokens) == (True, 32)


def test_without_prefix_caching_a_state_is_one_block() -> None:
    flags = engine(enable_prefix_caching=False, speculative_method="ngram", num_speculative_tokens=3)
    plan = plan_kv_cache(hybrid(mamba_type="mamba1"), flags, Memory(num_gpu_blocks_override=100))
    assert (plan.groups[0].block_size, plan.admission_blocks) == (4096, (4, 4, 4, 8))
    assert [blocks.resident_blocks for blocks in request_blocks(plan, flags, 1000)] == [4, 4, 4, 2]


def test_ranks_divide_states_and_replicate_their_groups() -> None:
    model = hybrid(groups=2, group_channels=256)
    specs = [layer_specs(model, engine(tensor_parallel_size=ranks))["layers.0"] for ranks in (1, 2, 4)]
    assert [spec.shapes for spec in specs if isinstance(spec, MambaSpec)] == [
        ((3, 8192), (32, 128, 128)),
        ((3, 4096), (16, 128, 128)),
        ((3, (8192 + 2 * 256) // 4), (8, 128, 128)),
    ]


def test_llama_4_loses_the_hybrid_manager_to_a_draft_and_to_the_environment() -> None:
    flags: dict[str, Any] = {"max_model_len": 131072, "max_num_batched_tokens": 8192, "max_num_seqs": 256}
    model = model_from_mapping({"base": "llama-4-scout", "draft_layers": [{"kind": "full"}]})
    memory = Memory(available_kv_cache_memory_gib=40)
    eagle: dict[str, Any] = {"speculative_method": "eagle", "num_speculative_tokens": 2}
    for changed, groups in ({}, 4), (eagle, 1), ({"allow_chunked_local_attn_with_hybrid_kv_cache": False}, 1):
        assert len(plan_kv_cache(model, EngineConfig(**flags, **changed), memory).groups) == groups


def test_layers_without_a_cache_count_for_the_stages() -> None:
    model = load_model("nemotron-3-nano-30b-a3b")
    stages = stage_names(model, engine(pipeline_parallel_size=2))
    assert [len(stage) for stage in stages] == [15, 14]
    assert model.num_hidden_layers == 52


def test_draft_layers_join_where_a_draft_runs() -> None:
    drafted = engine(speculative_method="mtp", num_speculative_tokens=2, disable_lookahead_block_hashes=True)
    model, memory = load_model("qwen3-next-80b-a3b"), Memory(available_kv_cache_memory_gib=40)
    plan = plan_kv_cache(model, drafted, memory)
    assert [group.is_eagle_group for group in plan.groups] == [False, False, False, True]
    assert [len(group.layer_names) for group in plan.groups] == [12, 12, 12, 13]
    assert (plan.drops_last_block, drafted.num_lookahead_tokens) == (True, 2)
    assert sum(len(group.layer_names) for group in plan_kv_cache(model, engine(), memory).groups) == 48


def test_a_draft_model_beside_a_model_of_the_catalogue() -> None:
    model = model_from_mapping({"base": "gpt-oss-20b", "draft_layers": [{"kind": "full", "num_kv_heads": 8}]})
    drafted = engine(speculative_method="eagle3", num_speculative_tokens=3)
    plan = plan_kv_cache(model, drafted, Memory(available_kv_cache_memory_gib=10))
    groups = [(group.kind, len(group.layer_names), group.padding_layers, group.is_eagle_group) for group in plan.groups]
    assert groups == [("sliding_window", 12, 1, False), ("full_attention", 13, 0, True)]
    assert (plan.drops_last_block, drafted.num_hash_lookahead_tokens) == (False, 1)
    with pytest.raises(InputError, match=r"^engine\.speculative_method: eagle3 drafts with layers of its own"):
        plan_kv_cache(load_model("gpt-oss-20b"), drafted, Memory(available_kv_cache_memory_gib=10))


def test_context_parallel_ranks_share_the_tokens() -> None:
    plan = plan_kv_cache(
        load_model("glm-4.7-flash"),
        engine(tensor_parallel_size=4, decode_context_parallel_size=4),
        Memory(num_gpu_blocks_override=100),
    )
    assert (plan.scheduler_block_size, plan.group_block_sizes, plan.admission_blocks) == (64, (64,), (64,))


def test_a_draft_that_queries_in_blocks_is_on_every_rank() -> None:
    model = model_from_mapping({"base": "glm-4.7-flash", "draft_layers": [{"kind": "full", "num_kv_heads": 4}]})
    ranks = {"tensor_parallel_size": 4, "decode_context_parallel_size": 4, "num_speculative_tokens": 7}
    for method, sharded in ("dflash", False), ("eagle3", True):
        specs = layer_specs(model, engine(speculative_method=method, **ranks))
        assert (specs["layers.0"].dcp_sharded, specs["draft.0"].dcp_sharded) == (True, sharded)


@pytest.mark.parametrize(
    ("model", "flags", "where"),
    [
        ("gemma-3-27b", {"tensor_parallel_size": 32, "decode_context_parallel_size": 2}, "engine.decode_context"),
        ("llama-3.1-8b", {"tensor_parallel_size": 8, "decode_context_parallel_size": 2}, "engine.decode_context"),
        ("llama-3.1-8b", {"decode_context_parallel_size": 2}, "engine.decode_context_parallel_size: 2 does not"),
        ("llama-3.1-8b", {"kv_cache_dtype": "fp8_ds_mla"}, "engine.kv_cache_dtype: fp8_ds_mla is a format of"),
        ("llama-3.1-8b", {"prefix_match_unit": 8}, "engine.prefix_match_unit: 8 cannot be: with one group"),
        (
            "llama-3.1-8b",
            {"long_prefill_token_threshold": 4097},
            "engine.long_prefill_token_threshold: 4097 is greater than max_model_len (4096)",
        ),
        ("jamba-v0.1", {"enable_chunked_prefill": False, "max_num_batched_tokens": 4096}, "engine.enable_chunked"),
        ("jamba-v0.1", {"mamba_block_size": 64, "enable_prefix_caching": False}, "engine.mamba_block_size: 64 can"),
        (
            "whisper-large-v3",
            {"max_model_len": 448, "max_num_batched_tokens": 2048},
            "engine.enable_prefix_caching: cross attention cannot",
        ),
        ("whisper-large-v3", {"max_model_len": 448, "max_num_batched_tokens": 1024}, "engine.max_num_batched_tokens"),
    ],
)
def test_refusals(model: str, flags: dict[str, Any], where: str) -> None:
    with pytest.raises(RefusalError) as caught:
        plan_kv_cache(load_model(model), engine(**flags), Memory(available_kv_cache_memory_gib=40))
    assert str(caught.value).startswith(where)


def test_an_encoder_turns_the_threshold_of_prefill_off_before_it_is_checked() -> None:
    """Smallest case in which ours refused to start and vLLM did not (config/scheduler.py:296)."""
    flags = {"max_model_len": 448, "max_num_batched_tokens": 2048, "enable_prefix_caching": False}
    settings = engine(**flags, long_prefill_token_threshold=449)
    assert plan_kv_cache(load_model("whisper-large-v3"), settings, Memory(available_kv_cache_memory_gib=40)).groups


def test_windows_that_are_replayed_have_one_size() -> None:
    """vLLM asserts it (v1/core/sched/scheduler.py:311)."""
    windows = [{"kind": "sliding_window_mla", "window": size, "bounded_replay": True} for size in (64, 128)]
    model = {"layers": [{"kind": "mla"}, *windows], "num_kv_heads": 1, "head_size": 576, "max_model_len": 4096}
    with pytest.raises(RefusalError, match="windows of 64, 128 tokens that are replayed"):
        plan_kv_cache(model_from_mapping(model), engine(), Memory(num_gpu_blocks_override=2000))


def test_attention_sinks_do_not_start() -> None:
    sinks = {"layers": [{"kind": "sink", "sink_len": 16}], "num_kv_heads": 2, "head_size": 64, "max_model_len": 4096}
    assert isinstance(layer_specs(model_from_mapping(sinks), engine())["layers.0"], SinkFullAttentionSpec)
    with pytest.raises(RefusalError, match="TypeError"):
        plan_kv_cache(model_from_mapping(sinks), engine(), Memory(num_gpu_blocks_override=1000))


def test_a_model_without_any_cache_has_nothing_to_plan() -> None:
    encoder = {"layers": [{"kind": "no_cache", "count": 4}], "num_kv_heads": 2, "head_size": 64, "max_model_len": 4096}
    with pytest.raises(InputError, match="no layer has a KV cache"):
        plan_kv_cache(model_from_mapping(encoder), engine(), Memory(num_gpu_blocks_override=10))
