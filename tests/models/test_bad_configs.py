"""A config that cannot be read, or that vLLM refuses, is one clear line, whatever its JSON holds; never a traceback."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from sim.engine_config import EngineConfig
from sim.errors import InputError, RefusalError
from sim.models import load_model, model_from_config
from sim.models.catalogue import catalogue, config_of
from sim.planning import KVCacheMemoryError, Memory, plan_kv_cache

LLAMA: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "num_hidden_layers": 4,
    "num_attention_heads": 8,
    "num_key_value_heads": 2,
    "hidden_size": 512,
    "max_position_embeddings": 4096,
}
DELETED = object()
BAD: tuple[Any, ...] = (DELETED, "x", None, -1, 10**30, [], {}, [1], 0, 1.5, True, float("nan"))
FLAGS: dict[str, Any] = {"max_num_batched_tokens": 8192, "max_num_seqs": 8}


def one_per_architecture() -> list[str]:
    """A name of the catalogue for each model class."""
    return list({entry["architecture"]: name for name, entry in reversed(catalogue().items())}.values())


def spoiled(raw: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The config with one field after the other deleted, or replaced by what cannot be there."""
    parts = [key for key, value in raw.items() if isinstance(value, dict)]
    for part in (None, *parts):
        for key in raw if part is None else raw[part]:
            for bad in BAD:
                changed = copy.deepcopy(raw)
                place = changed if part is None else changed[part]
                if bad is DELETED:
                    del place[key]
                else:
                    place[key] = bad
                yield changed


def outcome(raw: Any) -> str | None:
    """The line that refuses ``raw``, None where there is a plan for it."""
    try:
        model = model_from_config(raw)
        caching = model.prefix_caching_by_default
        length = min(model.max_model_len, 4096)
        engine = EngineConfig(max_model_len=length, enable_prefix_caching=caching, **FLAGS)
        plan_kv_cache(model, engine, Memory(kv_cache_memory_bytes=1 << 44))
    except InputError as error:
        return str(error)
    return None


@pytest.mark.parametrize("name", one_per_architecture())
def test_no_json_is_a_traceback(name: str) -> None:
    raw = config_of(catalogue()[name])
    assert outcome(raw) is None
    lines = [line for line in map(outcome, spoiled(raw)) if line is not None]
    assert lines
    assert all("\n" not in line and len(line) < 400 for line in lines)


@pytest.mark.parametrize("raw", [None, 3, "x", [], [{}], True])
def test_json_that_is_no_config(raw: Any) -> None:
    assert "expected a mapping" in (outcome(raw) or "")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"num_hidden_layers": "4"}, "config.json: num_hidden_layers: expected an integer, got '4'"),
        ({"num_hidden_layers": 10**6}, "config.json: num_hidden_layers: expected at most 10,000, got 1000000"),
        ({"num_hidden_layers": None}, "config.json: 'num_hidden_layers' is missing; vLLM cannot load a llama model"),
        ({"num_attention_heads": -8}, "config.json: num_attention_heads: expected an integer of at least 1, got -8"),
        ({"architectures": []}, "config.json: 'architectures' is missing: vLLM refuses to start"),
        ({"architectures": ["LamaForCausalLM"]}, "config.json: model architecture LamaForCausalLM is not modelled"),
        ({"architectures": ["BambaForCausalLM"]}, "config.json: model architecture BambaForCausalLM was supported in"),
        ({"model_type": None}, "config.json: 'model_type' is missing"),
        (
            {"model_type": "lama"},
            "config.json: model_type: 'lama' is unknown to vLLM and transformers (nearest: 'llama')",
        ),
        ({"model_type": "???", "auto_map": {"AutoModel": "x.X"}}, "config.json: model_type: '???' is unknown"),
        (
            {"layer_types": ["full_attention"], "sliding_window": 128},
            "config.json: layer_types: has 1 entries and the model 4 layers; vLLM reads one per layer",
        ),
        (
            {"layer_types": ["full_attention"] * 5},
            "config.json: layer_types: has 5 entries and the model 4 layers: vLLM refuses to start",
        ),
        ({"layer_types": ["full"] * 4}, "config.json: layer_types: expected one of full_attention, sliding_attention"),
        (
            {"layer_types": ["sliding_attention"] * 4},
            "config.json: 'sliding_window' is missing; vLLM cannot load a llama",
        ),
        (
            {"layer_types": ["full_attention"] * 4, "mlp_layer_types": ["dense"] * 3},
            "config.json: mlp_layer_types: has 3 entries and the model 4 layers",
        ),
        ({"layer_types": "full"}, "config.json: layer_types: expected a list, got 'full'"),
        ({"torch_dtype": "int4"}, "config.json: dtype: expected one of float16, bfloat16, float32, got 'int4'"),
        ({"rope_scaling": {"rope_type": "linear", "factor": 0}}, "config.json: rope_scaling: expected a factor above"),
    ],
)
def test_bad_fields(change: dict[str, Any], message: str) -> None:
    assert (outcome({**LLAMA, **change}) or "").startswith(message)


@pytest.mark.parametrize(
    "change",
    [{"model_type": "mine", "auto_map": {"AutoConfig": "mine.MyConfig"}}, {"model_type": "internlm3"}],
    ids=["a class of its own", "one whose checkpoints bring a class"],
)
def test_model_types_that_a_checkpoint_brings(change: dict[str, Any]) -> None:
    assert outcome({**LLAMA, **change}) is None


def test_the_nearest_architecture_is_named_and_not_used() -> None:
    with pytest.raises(InputError, match=r"nearest: LlamaForCausalLM, which is no substitute.*would be a guess"):
        model_from_config({**LLAMA, "architectures": ["LlamaForCausalLMs"]})


@pytest.mark.parametrize(
    ("name", "ranks", "message"),
    [
        ("qwen2.5-7b", 8, "does not divide the 28 attention heads"),
        ("phi-4", 4, "can neither share nor replicate 10 KV heads"),
        ("zamba2-7b", 4, "does not divide the 2 groups of the states"),
        ("glm-4.5v", 8, "does not divide the 12 heads of the vision tower"),
    ],
)
def test_ranks_that_do_not_divide(name: str, ranks: int, message: str) -> None:
    model = load_model(name)
    engine = EngineConfig(max_model_len=4096, tensor_parallel_size=ranks, **FLAGS)
    with pytest.raises(RefusalError, match=message):
        plan_kv_cache(model, engine, Memory(kv_cache_memory_bytes=40 << 30))


@pytest.mark.parametrize(
    ("name", "flags", "message"),
    [
        ("deepseek-v3", {"kv_cache_dtype": "int8_per_token_head"}, "no valid attention backend found for cuda 9.0"),
        ("deepseek-v3.2", {"device_capability": "8.0"}, "no valid attention backend found for cuda 8.0"),
        ("llama-3.1-8b", {"block_size": 24}, "no valid attention backend found"),
        ("deepseek-v4-flash", {"kv_cache_dtype": "int8_per_token_head"}, "the rows of deepseek-v4-flash are fp8"),
        ("qwen3-next-80b-a3b", {"disable_hybrid_kv_cache_manager": True}, "vLLM refuses to start"),
    ],
)
def test_what_no_kernel_runs(name: str, flags: dict[str, Any], message: str) -> None:
    engine = EngineConfig(max_model_len=4096, **{**FLAGS, **flags})
    with pytest.raises(RefusalError, match=message):
        plan_kv_cache(load_model(name), engine, Memory(kv_cache_memory_bytes=40 << 30))


def test_states_alone_have_no_heads_to_deal_a_context_out_to() -> None:
    engine = EngineConfig(max_model_len=2048, tensor_parallel_size=4, decode_context_parallel_size=2, **FLAGS)
    with pytest.raises(RefusalError, match="codestral-mamba-7b has no KV heads"):
        plan_kv_cache(load_model("codestral-mamba-7b"), engine, Memory(kv_cache_memory_bytes=4 << 30))


def test_too_little_memory_says_what_would_fit() -> None:
    engine = EngineConfig(max_model_len=131072, **FLAGS)
    with pytest.raises(KVCacheMemoryError) as caught:
        plan_kv_cache(load_model("llama-3.1-70b"), engine, Memory(kv_cache_memory_bytes=4 << 30))
    assert 0 < caught.value.estimated_max_len < 131072


def test_more_heads_than_elements() -> None:
    assert outcome(LLAMA | {"num_attention_heads": 1024}) == (
        "config.json: hidden_size: 512 leaves nothing for each of 1024 attention heads"
    )


@pytest.mark.parametrize("name", ["qwen2.5-7b", "qwen3-8b", "qwen2.5-vl-7b", "qwen3-vl-8b"])
def test_mixed_layer_types_of_qwen_need_as_many_max_window_layers_as_layers(name: str) -> None:
    raw = copy.deepcopy(config_of(catalogue()[name]))
    text = raw.get("text_config", raw)
    text |= {"num_hidden_layers": 4, "layer_types": ["full_attention", "sliding_attention"] * 2, "sliding_window": 128}
    for given in (3, 28, 5):
        text["max_window_layers"] = given
        with pytest.raises(RefusalError, match=f"max_window_layers: is {given}, not the 4 of num_hidden_layers"):
            model_from_config(raw)
    text["max_window_layers"] = 4
    assert model_from_config(raw).layer_counts == {"full": 4}


@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_gpt_oss_runs_in_bfloat16_only(dtype: str) -> None:
    """Its experts are MXFP4, whose kernels know no other dtype; without quantization it plans in any."""
    raw = config_of(catalogue()["gpt-oss-20b"])
    engine = EngineConfig(max_model_len=4096, **FLAGS)
    with pytest.raises(RefusalError, match=f"^dtype: {dtype} is not supported by the quantization of gpt-oss-20b"):
        plan_kv_cache(replace(load_model("gpt-oss-20b"), dtype=dtype), engine, Memory(kv_cache_memory_bytes=1 << 34))
    plain = model_from_config({key: value for key, value in raw.items() if key != "quantization_config"})
    assert plan_kv_cache(replace(plain, dtype=dtype), engine, Memory(kv_cache_memory_bytes=1 << 34)).num_blocks > 0
