"""The catalogue against published sizes, and models written out in a scenario."""

from __future__ import annotations

from typing import Any

import pytest

from sim.errors import InputError
from sim.models import LayerShape, load_model, model_from_mapping, model_names
from sim.models.catalogue import catalogue

TOY: dict[str, Any] = {
    "layers": [{"kind": "full", "count": 10}, {"kind": "sliding_window", "count": 20, "window": 32}],
    "num_kv_heads": 1,
    "head_size": 64,
    "max_model_len": 4096,
}


@pytest.mark.parametrize(
    ("name", "billions", "counts", "max_model_len"),
    [
        ("gemma-3-27b", 27.01, {"sliding_window 1024": 52, "full": 10}, 131072),
        ("gemma-2-27b", 27.23, {"sliding_window 4096": 23, "full": 23}, 8192),
        ("gpt-oss-20b", 20.91, {"sliding_window 128": 12, "full": 12}, 131072),
        ("gpt-oss-120b", 116.8, {"sliding_window 128": 18, "full": 18}, 131072),
        ("llama-3.1-8b", 8.03, {"full": 32}, 131072),
        ("llama-3.1-70b", 70.55, {"full": 80}, 131072),
        ("mistral-7b-v0.1", 7.24, {"sliding_window 4096": 32}, 32768),
        ("qwen3-32b", 32.76, {"full": 64}, 40960),
        ("olmo-3-32b", 32.23, {"sliding_window 4096": 48, "full": 16}, 65536),
        ("command-a", 111.06, {"sliding_window 4097": 48, "full": 16}, 131072),
    ],
)
def test_layers_and_published_sizes(name: str, billions: float, counts: dict[str, int], max_model_len: int) -> None:
    model = load_model(name)
    assert model.layer_counts == counts
    assert model.max_model_len == max_model_len
    assert model.params_total / 1e9 == pytest.approx(billions, rel=1e-3)


def test_active_weights_of_experts() -> None:
    model = load_model("gpt-oss-120b")
    assert model.params_active / 1e9 == pytest.approx(5.13, rel=2e-3)  # as published
    assert model.params_dense + model.expert_params * 4 // 128 == model.params_active
    assert (model.num_experts, model.experts_per_token, model.expert_bytes_per_param) == (128, 4, 0.53125)


def test_an_input_embedding_of_its_own_is_not_active() -> None:
    model = load_model("llama-3.1-8b")
    assert model.params_total - model.params_active == 128256 * 4096
    assert model.params_dense == model.params_active


def test_where_the_windows_lie() -> None:
    gemma, oss, command = (load_model(name).layers for name in ("gemma-3-27b", "gpt-oss-20b", "command-a"))
    assert [layer.window for layer in gemma[:6]] == [1024] * 5 + [None]
    assert [layer.window for layer in gemma[-2:]] == [1024, 1024]
    assert [layer.window for layer in oss[:3]] == [128, None, 128]
    assert [layer.window for layer in command[:4]] == [4097, 4097, 4097, None]


@pytest.mark.parametrize("name", model_names())
def test_every_entry_has_an_origin(name: str) -> None:
    entry = catalogue()[name]
    required = {"checkpoint", "architecture", "config", "origin"}
    assert required <= set(entry) <= required | {"params", "composite", "weight_bits", "expert_weight_bits"}
    assert load_model(name).origin["config"] == entry["origin"] != ""


def test_a_model_is_found_by_its_checkpoint() -> None:
    assert load_model("google/gemma-3-27b-it").name == "gemma-3-27b"


def test_an_unknown_model_names_the_nearest() -> None:
    with pytest.raises(InputError, match=r"^model: unknown model 'gemma-3-27' \(nearest: 'gemma-3-27b'\)"):
        load_model("gemma-3-27", where="model")


def test_an_inline_model_in_construction_order() -> None:
    model = model_from_mapping(TOY)
    assert model.layers[:1] == (LayerShape("full", None, 1, 64, 64),)
    assert model.layers[10:11] == (LayerShape("sliding_window", 32, 1, 64, 64),)
    assert model.num_hidden_layers == 30
    assert (model.name, model.dtype) == ("inline", "bfloat16")


def test_a_layer_may_have_sizes_of_its_own() -> None:
    entry = {"kind": "full", "num_kv_heads": 4, "head_size": 128, "head_size_v": 32}
    model = model_from_mapping({**TOY, "layers": [entry, *TOY["layers"]]})
    assert model.layers[0] == LayerShape("full", None, 4, 128, 32)
    assert model.num_attention_heads == 4


def test_what_is_not_given_is_estimated_and_says_so() -> None:
    model = model_from_mapping({**TOY, "hidden_size": 128})
    assert (model.hidden_size, model.params_total) == (128, 12 * 128 * 128 * 30)
    assert (model.origin["hidden_size"], model.origin["params_total"]) == ("given", "estimated")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"layer": []}, "model: unknown key 'layer' (nearest: 'layers')"),
        ({"layers": []}, "model.layers: must be a list of at least one"),
        ({"layers": "full"}, "model.layers: must be a list of at least one"),
        ({"layers": ["full"]}, "model.layers[0]: must be a mapping"),
        (
            {"layers": [{"kind": "rnn"}]},
            "model.layers[0].kind: must be one of full, sliding_window, chunked_local, mamba",
        ),
        ({"layers": [{"kind": "mamba"}]}, "model.layers[0].state_shapes: must be a list of shapes"),
        ({"layers": [{"kind": "mamba", "window": 8}]}, "model.layers[0].window: a mamba layer has none; it has kind"),
        ({"layers": [{"kind": "chunked_local"}]}, "model.layers[0].chunk_size: must be an integer of at least 1"),
        (
            {"layers": [{"kind": "mla", "cache_role": "dense"}]},
            "model.layers[0].cache_role: must be one of sparse",
        ),
        ({"layers": [{"kind": "full", "draft": 1}]}, "model.layers[0].draft: must be true or false, got 1"),
        ({"layers": [{"kind": "full", "window": 8}]}, "model.layers[0].window: a full layer has no window"),
        ({"layers": [{"kind": "sliding_window"}]}, "model.layers[0].window: must be an integer of at least 1"),
        ({"layers": [{"kind": "full", "count": 0}]}, "model.layers[0].count: must be an integer of at least 1, got 0"),
        ({"layers": [{"kind": "full", "count": 10**9}]}, "model.layers[0].count: more than 10,000 layers"),
        ({"layers": [{"kind": "full", "cuont": 2}]}, "model.layers[0]: unknown key 'cuont' (nearest: 'count')"),
        ({"num_kv_heads": 0}, "model.num_kv_heads: must be an integer of at least 1, got 0"),
        ({"num_kv_heads": True}, "model.num_kv_heads: must be an integer of at least 1, got True"),
        ({"head_size": 64.5}, "model.head_size: must be an integer of at least 1, got 64.5"),
        ({"max_model_len": 10**30}, "model.max_model_len: must be an integer of at least 1"),
        ({"dtype": "bf16"}, "model.dtype: dtype 'bf16' is not modelled"),
        ({"dtype": 16}, "model.dtype: must be the name of a dtype"),
        ({"experts_per_token": 2}, "model.experts_per_token: cannot exceed num_experts (0)"),
        ({"weight_bytes_per_param": 0}, "model.weight_bytes_per_param: must be a number of bytes above 0"),
    ],
)
def test_bad_inline_models(change: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError) as caught:
        model_from_mapping({**TOY, **change})
    assert str(caught.value).startswith(message)


@pytest.mark.parametrize("key", ["layers", "num_kv_heads", "head_size", "max_model_len"])
def test_what_an_inline_model_needs(key: str) -> None:
    with pytest.raises(InputError, match=f"^model: '{key}' is missing"):
        model_from_mapping({name: value for name, value in TOY.items() if name != key})
