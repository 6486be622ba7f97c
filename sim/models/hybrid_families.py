"""Families whose layers are more than attention with and without a window: one rule each, read off vLLM 0.33.0.

A rule gets the fields of a config.json and answers the layers in construction order, which is not always the order of
depth, and decides the groups.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from sim.models.model import LayerShape, StateShape

Config = Mapping[str, Any]
LayerRule = Callable[[Config], Iterator[LayerShape]]


def _full(config: Config, depth: int) -> LayerShape:
    size = config["head_dim"]
    return LayerShape("full", None, config["num_key_value_heads"], size, size, depth=depth)


def _latent(config: Config, depth: int) -> LayerShape:
    """MLA: one vector of the compressed keys and values and the rotary part of the keys."""
    return LayerShape("mla", None, 1, config["kv_lora_rank"] + config["qk_rope_head_dim"], 0, depth=depth)


def _state(state: StateShape, depth: int) -> LayerShape:
    return LayerShape("mamba", None, 0, 0, 0, state=state, depth=depth)


def _drafts(number: int, *layers: LayerShape) -> Iterator[LayerShape]:
    """The layers of the model's own draft modules (multi-token prediction)."""
    for depth in range(number):
        yield from (replace(layer, depth=depth, draft=True) for layer in layers)


def mamba1(inner: int, taps: int, size: int) -> StateShape:
    """Mamba: a convolution of ``taps`` and ``size`` numbers per channel.

    vllm 0.33.0 model_executor/layers/mamba/mamba_utils.py.
    """
    return StateShape(((taps - 1, inner), (inner, size)), (None, None), "mamba1")


def mamba2(inner: int, taps: int, size: int, heads: int, head_dim: int, groups: int, dtype: str | None) -> StateShape:
    """Mamba 2: keys and values of each group go through the convolution with the input."""
    return StateShape(
        ((taps - 1, inner + 2 * groups * size), (heads, head_dim, size)),
        (None, dtype),
        "mamba2",
        grows_with_drafts=True,
        groups=groups,
        group_channels=2 * size,
        checkpoints=1,
        checkpoint_alignment=1,
    )


def gated_delta_net(config: Config, dtype: str | None) -> StateShape:
    """Qwen's linear attention; FlashInfer's kernel exports states every 64 tokens."""
    keys = config["linear_num_key_heads"] * config["linear_key_head_dim"]
    values = config["linear_num_value_heads"] * config["linear_value_head_dim"]
    state = (config["linear_num_value_heads"], config["linear_value_head_dim"], config["linear_key_head_dim"])
    return StateShape(
        ((config["linear_conv_kernel_dim"] - 1, 2 * keys + values), state),
        (None, dtype),
        "gdn_attn",
        grows_with_drafts=True,
        checkpoints=1,
        checkpoint_alignment=64,
        on_block_grid=True,
    )


def _llama4(config: Config) -> Iterator[LayerShape]:
    """Every fourth layer has no rotary embedding and reads everything (model_executor/models/llama4.py)."""
    for depth in range(config["num_hidden_layers"]):
        layer = _full(config, depth)
        full = (depth + 1) % 4 == 0
        yield layer if full else replace(layer, kind="chunked_local", chunk_size=config["attention_chunk_size"])


def _qwen_next(config: Config) -> Iterator[LayerShape]:
    """Three gated delta nets, then full attention (model_executor/models/qwen3_next.py, qwen3_5.py)."""
    state = gated_delta_net(config, config.get("mamba_ssm_dtype"))
    for depth in range(config["num_hidden_layers"]):
        full = (depth + 1) % config["full_attention_interval"] == 0
        yield _full(config, depth) if full else _state(state, depth)
    yield from _drafts(config.get("mtp_num_hidden_layers", 0), _full(config, 0))


def _nemotron_h(config: Config) -> Iterator[LayerShape]:
    """A letter per layer: M a state, * attention, the others no cache (model_executor/models/nemotron_h.py)."""
    heads, head_dim = config["mamba_num_heads"], config["mamba_head_dim"]
    dtype = config.get("mamba_ssm_cache_dtype", "float32")
    size, groups = config["ssm_state_size"], config["n_groups"]
    state = mamba2(heads * head_dim, config["conv_kernel"], size, heads, head_dim, groups, dtype)
    for depth, letter in enumerate(config["hybrid_override_pattern"]):
        if letter in "M*":
            yield _state(state, depth) if letter == "M" else _full(config, depth)


def _granite_h(config: Config) -> Iterator[LayerShape]:
    """Attention at the given depths, states elsewhere (model_executor/models/granitemoehybrid.py)."""
    inner = config["mamba_expand"] * config["hidden_size"]
    heads, head_dim = config["mamba_n_heads"], config["mamba_d_head"]
    size, groups = config["mamba_d_state"], config["mamba_n_groups"]
    state = mamba2(inner, config["mamba_d_conv"], size, heads, head_dim, groups, None)
    for depth in range(config["num_hidden_layers"]):
        yield _full(config, depth) if depth in config["attention_layers"] else _state(state, depth)


def _falcon_h1(config: Config) -> Iterator[LayerShape]:
    """Every layer has attention and a state (model_executor/models/falcon_h1.py)."""
    heads, head_dim = config["mamba_n_heads"], config["mamba_d_head"]
    size, groups = config["mamba_d_state"], config["mamba_n_groups"]
    state = mamba2(config["mamba_d_ssm"], config["mamba_d_conv"], size, heads, head_dim, groups, None)
    for depth in range(config["num_hidden_layers"]):
        yield _full(config, depth)
        yield _state(state, depth)


def _jamba(config: Config) -> Iterator[LayerShape]:
    """One attention layer per period, Mamba elsewhere (model_executor/models/jamba.py)."""
    state = mamba1(config["mamba_expand"] * config["hidden_size"], config["mamba_d_conv"], config["mamba_d_state"])
    for depth in range(config["num_hidden_layers"]):
        full = depth % config["attn_layer_period"] == config["attn_layer_offset"]
        yield _full(config, depth) if full else _state(state, depth)


def _kimi_linear(config: Config) -> Iterator[LayerShape]:
    """MLA at the given depths, counted from 1; delta attention elsewhere (models/kimi_k3/)."""
    linear = config["linear_attn_config"]
    heads, head_dim = linear["num_heads"], linear["head_dim"]
    shapes = ((linear["short_conv_kernel_size"] - 1, 3 * heads * head_dim), (heads, head_dim, head_dim))
    state = StateShape(shapes, (None, "float32"), "gdn_attn", grows_with_drafts=True)
    for depth in range(config["num_hidden_layers"]):
        yield _latent(config, depth) if depth + 1 in linear["full_attn_layers"] else _state(state, depth)


def _deepseek(config: Config) -> Iterator[LayerShape]:
    """MLA everywhere (model_executor/models/deepseek_v2.py)."""
    for depth in range(config["num_hidden_layers"]):
        yield _latent(config, depth)


def _deepseek_sparse(config: Config) -> Iterator[LayerShape]:
    """An indexer's keys before MLA in every layer: fp8 and a scale of 4 bytes per 128 of them.

    vllm 0.33.0 model_executor/models/deepseek_v2.py.
    """
    row = config["index_head_dim"] + 4 * (config["index_head_dim"] // 128)
    indexer = LayerShape("mla", None, 1, row, 0, dtype="uint8", cache_role="indexer")
    latent = replace(_latent(config, 0), is_index_group_leader=True)
    for depth in range(config["num_hidden_layers"]):
        yield replace(indexer, depth=depth)
        yield replace(latent, depth=depth)
    yield from _drafts(config.get("num_nextn_predict_layers", 0), indexer, latent)


def _deepseek_v4(config: Config) -> Iterator[LayerShape]:
    """Windows everywhere; beside them, states and vectors compressed 4 or 128 to one; rows of 584 bytes.

    Pages are rounded up to multiples of 576 bytes (vllm 0.33.0 models/deepseek_v4/).
    """
    row: dict[str, Any] = {"dtype": "fp8_ds_mla", "state_bytes": 584, "alignment": 576}
    size = config["head_dim"]
    window = LayerShape("sliding_window_mla", config["sliding_window"], 1, size, 0, **row, block_size=64)
    for depth, ratio in enumerate(config["compress_ratios"][: config["num_hidden_layers"]]):
        main = LayerShape("mla", None, 1, size, 0, **row, tokens_per_state=max(ratio, 1), block_size=256)
        layers = [window]
        if ratio == 4:
            indexer = LayerShape("mla", None, 1, 132, 0, dtype="uint8", tokens_per_state=4, alignment=576)
            layers = [replace(indexer, block_size=256), _recent(4, 8, 512), window, main, _recent(4, 8, 2048)]
        elif ratio > 1:
            layers = [window, main, _recent(8, ratio, 1024)]
        yield from (replace(layer, depth=depth) for layer in layers)
    yield from _drafts(config.get("num_nextn_predict_layers", 0), window)


def _recent(block_size: int, window: int, size: int) -> LayerShape:
    """What is not compressed yet, in float32."""
    return LayerShape("sliding_window_mla", window, 1, size, 0, dtype="float32", alignment=576, block_size=block_size)


def _gemma4(config: Config) -> Iterator[LayerShape]:
    """Five windows, then full attention with wider and fewer heads (model_executor/models/gemma4.py)."""
    wide = config["global_head_dim"]
    for depth in range(config["num_hidden_layers"]):
        layer = _full(config, depth)
        if (depth + 1) % config["sliding_window_pattern"] == 0:
            heads = config["num_global_key_value_heads"]
            yield replace(layer, num_kv_heads=heads, head_size=wide, head_size_v=wide)
        else:
            yield replace(layer, kind="sliding_window", window=config["sliding_window"])


def _lfm2(config: Config) -> Iterator[LayerShape]:
    """Attention at the given depths, short convolutions elsewhere (model_executor/models/lfm2.py)."""
    state = StateShape(((config["conv_L_cache"] - 1, config["conv_dim"]),), (None,), "short_conv")
    for depth in range(config["num_hidden_layers"]):
        yield _full(config, depth) if depth in config["attention_layers"] else _state(state, depth)


def _whisper(config: Config) -> Iterator[LayerShape]:
    """Self attention and cross attention in every decoder layer (model_executor/models/whisper.py)."""
    for depth in range(config["num_hidden_layers"]):
        layer = _full(config, depth)
        yield layer
        yield replace(layer, kind="cross")


LAYER_RULES: dict[str, LayerRule] = {
    "llama4_text": _llama4,
    "qwen3_next": _qwen_next,
    "qwen3_5_text": _qwen_next,
    "nemotron_h": _nemotron_h,
    "granitemoehybrid": _granite_h,
    "falcon_h1": _falcon_h1,
    "jamba": _jamba,
    "kimi_linear": _kimi_linear,
    "deepseek_v3": _deepseek,
    "glm4_moe_lite": _deepseek,
    "deepseek_v32": _deepseek_sparse,
    "deepseek_v4": _deepseek_v4,
    "gemma4_text": _gemma4,
    "lfm2": _lfm2,
    "whisper": _whisper,
}
"""The rule of each ``model_type``."""
