"""What a model's layers become on other GPUs: the smallest cases in which vLLM 0.33.0's own classes differed."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from sim.engine_config import EngineConfig, default_budgets
from sim.errors import InputError, RefusalError
from sim.hardware import find_gpu
from sim.models import Model, load_model, model_from_config
from sim.models.hf import read_hf_config
from sim.models.quantization import checkpoint_kv_cache_dtype
from sim.planning import layer_specs, smallest_batch

LLAMA = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "num_hidden_layers": 1, "hidden_size": 1024}
GEMMA4 = {
    "architectures": ["Gemma4ForConditionalGeneration"],
    "model_type": "gemma4",
    "text_config": {"model_type": "gemma4_text", "use_bidirectional_attention": "vision"},
    "vision_config": {"model_type": "gemma4_vision", "default_output_length": 280},
}


def on(capability: str, model: Model, **flags: Any) -> list[Any]:
    """The specs of the model's layers there."""
    engine = EngineConfig(max_model_len=128, max_num_batched_tokens=64, max_num_seqs=4, device_capability=capability)
    return list(layer_specs(model, replace(engine, **flags)).values())


def llama(heads: int, **fields: Any) -> Model:
    return model_from_config({**LLAMA, "num_attention_heads": heads, "num_key_value_heads": heads, **fields})


def test_a_video_that_may_not_be_cut_makes_the_batch_larger() -> None:
    model = model_from_config(GEMMA4)
    assert smallest_batch(model, {}) == 2496
    a100, h100 = find_gpu("A100-80GB"), find_gpu("H100-80GB")
    assert default_budgets(a100, "server", 8192, largest_item_tokens=2496)[0] == 2496
    assert default_budgets(h100, "server", 8192, largest_item_tokens=2496)[0] == 8192
    text = {**GEMMA4, "text_config": {"model_type": "gemma4_text"}}
    assert smallest_batch(model_from_config(text), {}) == 0


def test_wide_and_narrow_heads_run_on_triton_where_there_is_no_flash_attention_4() -> None:
    model = model_from_config({**GEMMA4, "text_config": {"model_type": "gemma4_text"}})
    assert {spec.block_stride_alignment for spec in on("8.0", model)} == {None}


def test_heads_too_small_for_triton_run_on_flex_attention() -> None:
    assert [spec.block_size for spec in on("9.0", llama(256))] == [16]
    with pytest.raises(RefusalError, match="no valid attention backend"):
        on("9.0", llama(256), kv_cache_dtype="fp8")


def test_nvfp4_stores_halves_of_bytes_and_a_scale_per_sixteen() -> None:
    assert [spec.page_size_bytes for spec in on("10.0", llama(8), kv_cache_dtype="nvfp4")] == [16 * 8 * 2 * (64 + 8)]
    with pytest.raises(RefusalError, match="no valid attention backend"):
        on("9.0", llama(16), kv_cache_dtype="nvfp4")  # heads of 64, which FlashAttention 2 misreads


def test_triton_reads_no_fp8_before_ada() -> None:
    with pytest.raises(RefusalError, match="has no native fp8"):
        on("8.0", llama(8), kv_cache_dtype="fp8_per_token_head")
    assert on("8.9", llama(8), kv_cache_dtype="fp8_per_token_head")


@pytest.mark.parametrize(
    ("quantization", "dtype"),
    [
        ({"quant_method": "modelopt", "kv_cache_quant_algo": "FP8"}, "fp8_e4m3"),
        ({"quant_method": "modelopt", "kv_cache_scheme": {"num_bits": 4, "type": "float"}}, "nvfp4"),
        ({"quant_method": "fp8", "kv_cache_scheme": {"num_bits": 8, "type": "float"}}, None),
        ({"producer": {"name": "modelopt"}, "quant_algo": "FP8", "kv_cache_scheme": "FP8"}, None),
        (
            {"producer": {"name": "modelopt"}, "quantization": {"quant_algo": "FP8", "kv_cache_quant_algo": "FP8"}},
            "fp8_e4m3",
        ),
        ({"quant_method": "compressed-tensors", "kv_cache_scheme": {"num_bits": 8, "type": "float"}}, "fp8"),
    ],
)
def test_what_a_checkpoint_says_of_the_cache(quantization: dict[str, Any], dtype: str | None) -> None:
    assert checkpoint_kv_cache_dtype(read_hf_config({"quantization_config": quantization})) == dtype


def test_an_algorithm_that_vllm_does_not_know_is_refused() -> None:
    unknown = {"producer": {"name": "modelopt"}, "quantization": {"quant_algo": "INT3"}}
    with pytest.raises(InputError, match="INT3"):
        checkpoint_kv_cache_dtype(read_hf_config({"quantization_config": unknown}))


def test_sparse_attention_on_amd_takes_blocks_of_16_whole_rows_apart() -> None:
    specs = on("gfx942", load_model("deepseek-v3.2"))
    assert {spec.block_size for spec in specs} == {16}
    assert {spec.block_stride_alignment for spec in specs} == {None, 1152}
    assert {spec.block_stride_alignment for spec in on("gfx942", load_model("glm-5"), kv_cache_dtype="fp8")} == {
        None,
        576,
    }
    with pytest.raises(RefusalError, match="no valid attention backend found for gfx942"):
        on("gfx942", load_model("glm-5"), kv_cache_dtype="fp8_ds_mla")


def test_a_cpu_has_no_sparse_attention_and_no_quantized_latent_one() -> None:
    with pytest.raises(RefusalError, match="sparse attention is not supported on CPU"):
        on("cpu", load_model("deepseek-v3.2"))
    with pytest.raises(RefusalError, match="no valid attention backend found for cpu"):
        on("cpu", load_model("deepseek-v3"), kv_cache_dtype="fp8")
    assert {spec.block_size for spec in on("cpu", load_model("deepseek-v3"))} == {128}


@pytest.mark.parametrize("kind", ["mistral", "phi3"])
def test_windows_by_layer_also_where_a_model_has_one_for_all(kind: str) -> None:
    types = ["full_attention", "sliding_attention"]
    names = {"mistral": "MistralForCausalLM", "phi3": "Phi3ForCausalLM"}
    fields = {"architectures": [names[kind]], "model_type": kind, "num_hidden_layers": 2, "layer_types": types}
    assert llama(8, **fields, sliding_window=512).layer_counts == {"full": 1, "sliding_window 512": 1}


def test_the_first_command_r_knows_no_window() -> None:
    types = ["full_attention", "sliding_attention"]
    fields = {"architectures": ["CohereForCausalLM"], "model_type": "cohere", "num_hidden_layers": 2}
    assert llama(8, **fields, layer_types=types).layer_counts == {"full": 2}
    assert llama(8, **fields, layer_types=types, sliding_window=512).layer_counts == {"full": 2}
