"""How many weights a model has, counted from its config: attention and states, MLP or experts, embeddings.

Left out: norms, biases, sinks, and towers for images and sound, of which the text models here have none. Experts,
shared experts and dense layers among them follow the fields that each family names them by.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from sim.models.config import Config
from sim.models.families.nemotron_h import pattern_of
from sim.models.model import LayerShape

_EXPERTS: Final = ("num_experts", "moe_num_experts", "n_routed_experts", "num_local_experts")
_CHOSEN: Final = ("num_experts_per_tok", "num_experts_per_token", "top_k_experts", "moe_topk", "moe_k", "moe_top_k")
_SHARED: Final = (
    *("shared_expert_intermediate_size", "shared_intermediate_size", "moe_shared_expert_intermediate_size"),
    "share_expert_dim",
)
_SHARED_COUNT: Final = ("n_shared_experts", "num_shared_experts", "moe_num_shared_experts")
_UNGATED: Final = frozenset(
    {
        *("gpt2", "gpt_bigcode", "gpt_neox", "gptj", "opt", "bloom", "falcon", "phi", "starcoder2", "nemotron"),
        *("nemotron_h", "whisper", "apertus", "mamba", "mamba2", "falcon_mamba", "hrm_text", "jais2", "arcee"),
    }
)
"""Families whose MLP has two matrices instead of three."""

_GATED_QUERIES: Final = frozenset({"qwen3_next", "qwen3_5_text", "qwen3_5_moe_text"})
"""Families with a gate as wide as the queries."""


@dataclass(frozen=True, slots=True)
class ParamCounts:
    """Weights: all of them, those one token is multiplied with, and the routed experts of all layers together.

    ``num_experts`` routed experts per layer of experts, ``experts_per_token`` of which a token is sent to;
    ``embedding``: of the total, those of the input embedding and the output head.
    """

    total: int
    active: int
    expert: int
    num_experts: int = 0
    experts_per_token: int = 0
    embedding: int = 0


def count_params(config: Config, layers: Sequence[LayerShape], *, tied: bool = True) -> ParamCounts:
    """The weights of the model with these ``layers``, its draft modules left out.

    ``tied``: the output head shares the input embedding's weights.

    The input embedding is looked up, not multiplied, so it is not active; a tied output head shares its weights and is.

    >>> from sim.models.geometry import attention
    >>> tiny = {"hidden_size": 64, "num_attention_heads": 4, "num_hidden_layers": 1, "intermediate_size": 128}
    >>> config = Config("llama", {**tiny, "vocab_size": 1000})
    >>> count_params(config, [attention(config, 0)])
    ParamCounts(total=104960, active=104960, expert=0, num_experts=0, experts_per_token=0, embedding=64000)
    """
    hidden = _first(config, "hidden_size", "d_model", "n_embd")
    vocab = _first(config, "vocab_size", "padded_vocab_size")
    mixing = sum(_mixing(config, layer, hidden) for layer in _distinct(config, layers)) + _encoder(config, hidden)
    experts = _first(config, *_EXPERTS)
    chosen = min(_first(config, *_CHOSEN), experts)
    dense, routed = _feed_forward(config, layers, hidden, experts)
    head = vocab * hidden
    embedding = (0 if tied else head) + _per_layer_embeddings(config)
    expert = routed * experts
    total = mixing + dense + expert + head + embedding
    active = mixing + dense + routed * chosen + head
    return ParamCounts(total, active, expert, experts if routed else 0, chosen if routed else 0, head + embedding)


def _first(config: Config, *keys: str) -> int:
    """The first of these fields that is a positive number, 0 where none is; some families list one per kind."""
    for key in keys:
        value = config.get(key)
        value = value[0] if isinstance(value, list) and value else value
        if isinstance(value, int) and not isinstance(value, bool) and 0 < value < 1 << 40:
            return value
    return 0


def _distinct(config: Config, layers: Sequence[LayerShape]) -> Sequence[LayerShape]:
    """The layers with weights of their own: Zamba2 shares a few blocks of attention, HRM one stack per module."""
    if config.model_type == "zamba2":
        shared = [layer for layer in layers if layer.state is None][: _first(config, "num_mem_blocks") or 1]
        return [*shared, *(layer for layer in layers if layer.state is not None)]
    if config.model_type == "hrm_text":
        return layers[: 2 * (_first(config, "num_layers_per_stack") or _first(config, "num_hidden_layers"))]
    return layers


def _encoder(config: Config, hidden: int) -> int:
    """Whisper's encoder."""
    if config.model_type != "whisper":
        return 0
    return _first(config, "encoder_layers") * hidden * (4 * hidden + 2 * _first(config, "encoder_ffn_dim"))


def _per_layer_embeddings(config: Config) -> int:
    """Gemma's embeddings per layer, which are looked up."""
    size = _first(config, "hidden_size_per_layer_input") * _first(config, "vocab_size_per_layer_input")
    return size * _first(config, "num_hidden_layers")


def _mixing(config: Config, layer: LayerShape, hidden: int) -> int:
    """Weights with which a layer mixes tokens."""
    if layer.state is not None:
        return _state(layer, hidden)
    if layer.kind == "no_cache" or layer.draft:
        return 0
    heads = _first(config, "num_attention_heads", "decoder_attention_heads", "n_head")
    if layer.cache_role == "indexer" or layer.dtype in ("uint8", "float32"):
        return _first(config, "q_lora_rank") * _first(config, "index_n_heads") * _first(config, "index_head_dim")
    if layer.kind in ("mla", "sliding_window_mla") or config.model_type == "minicpm3":
        return _latent(config, heads, hidden)
    size, values = layer.head_size, layer.head_size_v
    if config.model_type == "zamba2":  # attention reads the embedding beside the hidden state
        return 2 * hidden * heads * 3 * size + heads * size * hidden
    queries = heads * size * (2 if config.model_type in _GATED_QUERIES else 1)
    return hidden * (queries + layer.num_kv_heads * (size + values) + heads * values)


def _latent(config: Config, heads: int, hidden: int) -> int:
    rank, rotary = _first(config, "kv_lora_rank"), _first(config, "qk_rope_head_dim")
    others, values = _first(config, "qk_nope_head_dim"), _first(config, "v_head_dim") or hidden // heads
    compressed = _first(config, "q_lora_rank")
    size = others + rotary
    queries = compressed * (hidden + heads * size) if compressed else hidden * heads * size
    return queries + hidden * (rank + rotary) + rank * heads * (others + values) + heads * values * hidden


def _state(layer: LayerShape, hidden: int) -> int:
    """Projections into the convolution and its gate, and out again; the convolution's own weights are few."""
    assert layer.state is not None
    shapes, kind = layer.state.shapes, layer.state.mamba_type
    channels = shapes[0][-1]
    if kind == "short_conv":
        return 4 * hidden * channels
    if kind == "mamba1":
        return 3 * hidden * channels + channels * (2 * shapes[1][-1] + 2 * math.ceil(hidden / 16))
    heads, size = shapes[1][0], shapes[1][1]
    inner = heads * size
    if kind == "mamba2":
        return hidden * (channels + inner + heads) + inner * hidden
    return hidden * (channels + inner + 2 * heads) + inner * hidden


def _feed_forward(config: Config, layers: Sequence[LayerShape], hidden: int, experts: int) -> tuple[int, int]:
    """Weights of dense and shared MLPs of all layers, and of one routed expert of all layers together."""
    matrices = 2 if config.model_type in _UNGATED else 3
    width = _first(config, "intermediate_size", "ffn_hidden_size", "n_inner", "decoder_ffn_dim", "ffn_dim")
    width = width or (4 * hidden if config.model_type in _UNGATED else 0)
    width = _adjusted(config, width)
    expert_width = _first(config, "moe_intermediate_size", "expert_ffn_hidden_size") or width
    shared = _first(config, *_SHARED) or _first(config, *_SHARED_COUNT) * expert_width
    latent = _first(config, "moe_latent_size", "routed_expert_hidden_size") or hidden
    doubled = _doubled(config)
    dense = routed = 0
    if config.model_type == "llama4_text":
        shared, width = width, _first(config, "intermediate_size_mlp") or width
    if config.model_type == "zamba2":
        return (_first(config, "num_mem_blocks") or 1) * 3 * hidden * width, 0
    for depth in range(1 + max((layer.depth or 0 for layer in layers if not layer.draft), default=0)):
        kind = _kind(config, depth, experts)
        if kind == "dense":
            dense += matrices * hidden * width * (2 if depth in doubled else 1)
        elif kind == "experts":
            around = 2 * hidden * latent if latent != hidden else 0
            dense += matrices * hidden * shared + hidden * experts + around
            routed += matrices * latent * expert_width
    return dense, routed


def _doubled(config: Config) -> range:
    """Depths where Gemma 4's MLP is twice as wide: those that read another layer's cache."""
    count, shared = _first(config, "num_hidden_layers"), _first(config, "num_kv_shared_layers")
    return range(count - shared, count) if config.get("use_double_wide_mlp") is True else range(0)


def _adjusted(config: Config, width: int) -> int:
    """LFM2 takes two thirds of the width, rounded up."""
    if not (config.model_type == "lfm2" and config.get("block_auto_adjust_ff_dim") is True):
        return width
    unit = _first(config, "block_multiple_of") or 1
    return math.ceil(2 * width // 3 / unit) * unit


def _kind(config: Config, depth: int, experts: int) -> str:
    """What follows the mixing at ``depth``: ``dense``, ``experts``, or ``none``."""
    if config.model_type.startswith("nemotron_h"):
        return {"-": "dense", "E": "experts"}.get(pattern_of(config)[depth : depth + 1], "none")
    if config.model_type in ("mamba", "mamba2", "falcon_mamba"):
        return "none"
    if not experts or depth < _first(config, "first_k_dense_replace", "moe_layer_start_index"):
        return "dense"
    period, offset = _first(config, "expert_layer_period"), _first(config, "expert_layer_offset")
    if period:
        return "experts" if depth % period == offset else "dense"
    step = _first(config, "interleave_moe_layer_step", "decoder_sparse_step") or 1
    chosen = config.get("moe_layer_freq")
    if isinstance(chosen, list) and depth < len(chosen):
        return "experts" if chosen[depth] else "dense"
    only_dense = config.get("mlp_only_layers")
    if isinstance(only_dense, list) and depth in only_dense:
        return "dense"
    return "experts" if (depth + 1) % step == 0 else "dense"
