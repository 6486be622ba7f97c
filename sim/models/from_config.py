"""From a config.json to a model: its family's layers, what its kernels depend on, its length and dtype."""

from __future__ import annotations

from dataclasses import replace
from types import ModuleType
from typing import Any, Final

from sim.errors import InputError
from sim.models.config import Config
from sim.models.hf import HFConfig, read_hf_config
from sim.models.items import NAMED, items_of
from sim.models.layer_types import check_layer_types, check_one_kind
from sim.models.lengths import max_model_len, model_dtype
from sim.models.model import Kernels, LayerShape, Model
from sim.models.needed import check_needed
from sim.models.params import count_params
from sim.models.quantization import checkpoint_kv_cache_dtype, runs_in
from sim.models.registry import drafts_of, family_of, is_pooled, layers_of
from sim.models.stored import stored_bytes

_MM_PREFIX: Final = frozenset({"bagel", "gemma3", "molmo2", "moondream3", "paligemma"})
"""Model types whose image tokens read each other both ways (model_arch_config_convertor.py:340)."""

_DIRECTIONLESS: Final = ("LlamaFor", "MistralFor", "Qwen2For", "Qwen3For", "Gemma3For", "ApertusFor")
"""Classes that look at ``is_causal``: without it they are encoders, which keep nothing."""

_GEMMA4: Final = ("gemma4", "gemma4_text", "gemma4_unified", "gemma4_unified_text")
_SHARED_VISION: Final = ("glm4v", "glm4v_moe", "glm_ocr", "qwen2_vl", "qwen2_5_vl", "qwen3_vl", "qwen3_vl_moe")
"""Model types whose vision tower is dealt out to the ranks head by head."""


def model_from_config(raw: Any, *, name: str | None = None, where: str = "config.json") -> Model:
    """The model that a config.json describes, ``raw`` being its parsed content.

    Raises InputError, one line that names ``where`` and the field, for what cannot be read, for a model class whose
    layers are not known, and RefusalError for what vLLM refuses.

    >>> llama = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "num_hidden_layers": 2}
    >>> model_from_config(llama).layer_counts
    {'full': 2}
    """
    config = read_hf_config(raw, where)
    try:
        architecture, family = family_of(config)
        check_needed(architecture, config)
        check_layer_types(config.text)
        check_one_kind(config.text, alone=config.text is config.top)
        pooling = bool(getattr(family, "POOLING", False)) or is_pooled(config)
        layers = _with_direction(layers_of(family, config.text), architecture, config)
        drafts = tuple(replace(layer, draft=True) for layer in drafts_of(family, config.text))
        return Model(
            name=name or architecture,
            layers=layers + drafts,
            max_model_len=max_model_len(config),
            dtype=model_dtype(config, encoder_only=bool(getattr(family, "POOLING", False))),
            kernels=replace(_kernels(config, family, layers), pooling=pooling, dtypes=runs_in(config)),
            kv_cache_dtype=checkpoint_kv_cache_dtype(config),
            kv_cache_layout=getattr(family, "LAYOUT", None),
            num_layers=_depth(layers),
            max_source_positions=_encoder_tokens(config, layers),
            architecture=architecture,
            **_sizes(config, layers),
        )
    except (ZeroDivisionError, OverflowError, RecursionError) as error:
        raise InputError(f"sizes that cannot be ({error}): vLLM fails too", where=where) from error


def _with_direction(layers: tuple[LayerShape, ...], architecture: str, config: HFConfig) -> tuple[LayerShape, ...]:
    """The layers, none of them with a cache where ``is_causal`` is false and the model class heeds it.

    vllm 0.33.0 model_executor/models/llama.py:330 and qwen2.py:270; of MLA it builds ordinary attention then.
    """
    if config.text.get("is_causal") is not False:
        return layers
    if any(layer.kind == "mla" for layer in layers):
        raise config.text.error("is_causal", "false: latent attention without a direction is not modelled")
    if not architecture.startswith(_DIRECTIONLESS):
        return layers
    return tuple(LayerShape("no_cache", None, 0, 0, 0, depth=layer.depth) for layer in layers)


def _depth(layers: tuple[LayerShape, ...]) -> int:
    return 1 + max((layer.depth or 0 for layer in layers), default=0)


def _encoder_tokens(config: HFConfig, layers: tuple[LayerShape, ...]) -> int:
    crosses = any(layer.kind == "cross" for layer in layers)
    return config.text.integer("max_source_positions") if crosses else 0


def _kernels(config: HFConfig, family: ModuleType, layers: tuple[LayerShape, ...]) -> Kernels:
    text = config.text
    widths = [layer.head_size for layer in layers if layer.is_own_attention]
    return Kernels(
        num_heads=text.maybe_integer("num_attention_heads") or 0,
        num_kv_heads=getattr(family, "model_kv_heads", _most_kv_heads)(text, layers),
        head_size=max(widths, default=0),
        qk_nope_head_dim=text.maybe_integer("qk_nope_head_dim"),
        mm_prefix=_mm_prefix(config),
        sinks=bool(getattr(family, "SINKS", False)),
        attention_free=bool(getattr(family, "ATTENTION_FREE", False)),
        quantized_on_blackwell=text.model_type in ("glm_moe_dsa", "glm5_next_text"),
        vision_heads=_vision_heads(config),
        items=items_of(config),
        items_named=config.top.model_type in NAMED,
        uneven_heads=text.model_type in _GEMMA4 and len(set(widths)) > 1,
    )


def _most_kv_heads(config: Config, layers: tuple[LayerShape, ...]) -> int:
    del config
    return max((layer.num_kv_heads for layer in layers if layer.is_own_attention), default=0)


def _mm_prefix(config: HFConfig) -> bool:
    """Whether tokens of an image read each other both ways."""
    top = config.top
    if top.has("is_mm_prefix_lm"):
        return top.flag("is_mm_prefix_lm")
    if top.model_type in _GEMMA4:
        multimodal = top is not config.text and top.has("vision_config")
        return multimodal and config.text.get("use_bidirectional_attention") == "vision"
    return top.model_type in _MM_PREFIX


def _vision_heads(config: HFConfig) -> int:
    if config.top.model_type not in _SHARED_VISION:
        return 0
    vision = config.top.part("vision_config")
    if vision is None:
        return 0
    return vision.maybe_integer("num_heads") or vision.maybe_integer("num_attention_heads") or 0


def _sizes(hf: HFConfig, layers: tuple[LayerShape, ...]) -> dict[str, Any]:
    """Sizes that cost time, as far as the config names them."""
    config = hf.text
    tied = hf.top if "tie_word_embeddings" in hf.top.values else config
    heads = config.maybe_integer("num_attention_heads") or 0
    counts = count_params(config, layers, tied=tied.flag("tie_word_embeddings", True))
    others, of_expert = stored_bytes(hf, layers=_depth(layers), routed=counts.expert > 0)
    plain = min(counts.embedding, counts.total - counts.expert)
    dense = max(1, counts.total - counts.expert)
    return {
        "weight_bytes_per_param": (2 * plain + others * (dense - plain)) / dense,
        "expert_bytes_per_param": of_expert,
        "hidden_size": config.maybe_integer("hidden_size") or 1,
        "num_attention_heads": heads or 1,
        "vocab_size": config.maybe_integer("vocab_size") or config.maybe_integer("padded_vocab_size") or 0,
        "params_total": counts.total,
        "params_active": counts.active,
        "expert_params": counts.expert,
        "num_experts": counts.num_experts,
        "experts_per_token": counts.experts_per_token,
        "origin": {} if heads else {"num_attention_heads": "estimated"},
    }
