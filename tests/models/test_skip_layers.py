"""``--kv-cache-dtype-skip-layers``: the smallest cases of each rule, all equal to vLLM 0.33.0's own classes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from sim.engine_config import EngineConfig
from sim.errors import InputError, RefusalError
from sim.models import load_model
from sim.planning import effective_engine, layer_specs, plan_kv_cache
from sim.planning.sizing import Memory
from sim.vllm_flags import read_arguments, settings_of

FLAGS: dict[str, Any] = {"max_model_len": 4096, "max_num_batched_tokens": 8192, "max_num_seqs": 8}
MEMORY = Memory(kv_cache_memory_bytes=40 << 30)


def engine(dtype: str, *skipped: str, **flags: Any) -> EngineConfig:
    return EngineConfig(**{**FLAGS, **flags}, kv_cache_dtype=dtype, kv_cache_dtype_skip_layers=skipped)


def specs(name: str, dtype: str, *skipped: str, **flags: Any) -> list[tuple[str, str, int, int | None]]:
    """Kind, dtype, block size and padding of each distinct spec, in order."""
    made = layer_specs(load_model(name), engine(dtype, *skipped, **flags)).values()
    found = ((spec.kind, getattr(spec, "dtype", ""), spec.block_size, spec.page_size_padded) for spec in made)
    return list(dict.fromkeys(found))


def test_windows_keep_the_models_dtype_in_pages_that_quantized_layers_fill() -> None:
    assert specs("gemma-2-27b", "fp8", "sliding_window") == [
        ("sliding_window", "bfloat16", 16, 131072),
        ("full_attention", "fp8", 32, None),
    ]


def test_a_layer_by_its_number_is_larger_and_windows_are_padded_all_the_same() -> None:
    assert specs("gemma-2-27b", "fp8", "1") == [
        ("sliding_window", "fp8", 32, 131072),
        ("full_attention", "bfloat16", 32, None),
        ("full_attention", "fp8", 32, None),
    ]


def test_nothing_to_skip_changes_nothing() -> None:
    for dtype in ("auto", "bfloat16"):
        assert specs("gemma-2-27b", dtype, "sliding_window") == specs("gemma-2-27b", dtype)
    assert specs("gemma-2-27b", "fp8", "47", "nonsense")[1:] == [("full_attention", "fp8", 32, None)]


def test_chunked_local_layers_keep_the_kernels_of_the_quantized_ones() -> None:
    made = layer_specs(load_model("llama-4-scout"), engine("nvfp4", "0", "1", "2", tensor_parallel_size=4))
    first = next(iter(made.values()))
    assert (first.block_size, getattr(first, "dtype", None)) == (64, "bfloat16")
    assert str(first.block_stride_alignment) == "KernelBlocks(tokens=64)"


def test_shared_attention_is_numbered_as_it_is_constructed() -> None:
    made = list(layer_specs(load_model("zamba2-2.7b"), engine("fp8", "1", "3")).values())
    dtypes = [getattr(spec, "dtype", "") for spec in made][:5]
    assert dtypes == ["fp8", "bfloat16", "fp8", "bfloat16", "fp8"]


def test_states_are_padded_to_the_shared_page() -> None:
    plain = plan_kv_cache(load_model("qwen3.5-27b"), engine("fp8"), MEMORY)
    skipped = plan_kv_cache(load_model("qwen3.5-27b"), engine("fp8", "3"), MEMORY)
    assert (len(plain.groups), len(skipped.groups)) == (4, 64)  # a layer that stands alone makes groups of one layer
    assert {group.page_size_bytes for group in skipped.groups} == {2 * plain.groups[0].spec.page_size_bytes}


@pytest.mark.parametrize("ranks", [1, 2])
def test_rings_beside_latent_attention_do_not_count_as_its_heads(ranks: int) -> None:
    """GLM-5.3-Flash on Blackwell: one head of 512 decides the shared page, not the two rows of a ring."""
    flags = {"device_capability": "10.0", "tensor_parallel_size": ranks}
    made = layer_specs(load_model("glm-5.3-flash"), engine("auto", "0", **flags)).values()
    attention = next(spec for spec in made if spec.kind == "mla_attention" and spec.page_size_bytes % 512 == 0)
    shared = 2 * 512 * attention.block_size  # as keys and values of fp8, which vLLM takes it for
    assert {spec.page_size_bytes for spec in made if spec.kind == "mamba"} == {shared}


def test_latent_attention_of_kimi_hears_of_no_skipping() -> None:
    assert [spec[1] for spec in specs("kimi-linear-48b-a3b", "fp8", "3") if spec[0] == "mla_attention"] == ["fp8"]


def test_indexers_and_latent_layers() -> None:
    found = specs("deepseek-v3", "fp8", "0", device_capability="9.0")
    assert [dtype for _, dtype, *_ in found] == ["bfloat16", "fp8"]


@pytest.mark.parametrize(("given", "message"), [(["1"], "must be a list"), ((1,), "must be a list")])
def test_bad_values(given: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        EngineConfig(**FLAGS, kv_cache_dtype_skip_layers=given)


def test_numbers_beside_a_draft_are_refused() -> None:
    drafting = engine("fp8", "1", speculative_method="mtp", num_speculative_tokens=1)
    with pytest.raises(InputError, match="not modelled beside a draft"):
        plan_kv_cache(load_model("deepseek-v3"), drafting, MEMORY)


def test_a_quantized_model_asks_for_blocks_of_64_of_layers_that_are_not() -> None:
    """FlashAttention 4 on Hopper reads wide fp8 heads in pages of 64; narrow windows take any multiple of 16."""
    assert {block for _, _, block, _ in specs("gemma-4-26b-a4b", "fp8", "sliding_window", "5")} == {128}


@pytest.mark.parametrize(
    ("name", "dtype", "skipped", "message"),
    [
        ("longcat-flash", "fp8", "sliding_window", "have two numbers in their names"),
        ("gemma-4-31b", "int8_per_token_head", "0", "TRITON_FLASH_ATTN, the kernels of the first layer, cannot store"),
    ],
)
def test_models_that_cannot_skip(name: str, dtype: str, skipped: str, message: str) -> None:
    with pytest.raises(RefusalError, match=message):
        plan_kv_cache(load_model(name), engine(dtype, skipped), MEMORY)


def test_the_flag_takes_several() -> None:
    words = ["m", "--kv-cache-dtype-skip-layers", "0", "sliding_window", "--kv-cache-dtype", "fp8"]
    assert settings_of(read_arguments(words)[1]).engine["kv_cache_dtype_skip_layers"] == ["0", "sliding_window"]


def test_quantized_pages_larger_than_plain_ones_are_refused() -> None:
    narrow = load_model("gemma-2-27b")
    assert narrow.kernels is not None
    tiny = replace(narrow, kernels=replace(narrow.kernels, head_size=2))
    with pytest.raises(RefusalError, match="takes more than the model's own dtype"):
        layer_specs(tiny, engine("int8_per_token_head", "1", device_capability="8.0"))


def test_a_draft_that_does_not_run_decides_no_layout() -> None:
    """Qwen3.5's draft module is layer 0 of its own; where it does not run, skipping layer 0 leaves Triton's layout."""
    flags = engine("int8_per_token_head", "0", "1", device_capability="10.0")
    assert effective_engine(load_model("qwen3.5-27b"), flags).kv_cache_layout == "LBNHC"


def test_blackwell_reads_images_both_ways_with_narrow_heads_in_flash_attention() -> None:
    """Its kernels, of the first layer that is skipped, pack no scales into the page that all layers share."""
    found = specs("gemma-3-27b", "int8_per_token_head", "0", "1", device_capability="10.0")
    assert found == [
        ("sliding_window", "bfloat16", 16, 131072),
        ("sliding_window", "int8_per_token_head", 16, 131072),
        ("full_attention", "int8_per_token_head", 32, None),
    ]


def test_sparse_attention_in_float16_with_many_heads_runs_on_blackwell() -> None:
    halved = replace(load_model("glm-5.2"), dtype="float16")
    made = layer_specs(halved, engine("fp8", "3", device_capability="10.0")).values()
    assert [getattr(spec, "dtype", "") for spec in made if spec.kind == "mla_attention"].count("float16") == 1


def test_a_block_size_below_what_a_state_needs_is_no_matter_of_the_indexer() -> None:
    """GLM-5.3-Flash: blocks of 64 tokens are raised to hold a state before pooled keys are cut from them."""
    flags = {"device_capability": "10.0", "block_size": 64}
    given = layer_specs(load_model("glm-5.3-flash"), engine("fp8", **flags)).values()
    assert {spec.block_size for spec in given if spec.kind != "circular_buffer"} == {8576}
