"""Heads of a model as vLLM's ModelConfig sees them: how many, how wide, and the latent vector of MLA.

Rules: vllm 0.33.0 transformers_utils/model_arch_config_convertor.py:81-170 and config.py:56 (other names of fields).
"""

from __future__ import annotations

from typing import Final

from sim.models.config import Config
from sim.models.model import LayerShape

_KV_HEADS: Final = (
    "n_head_kv",
    "num_kv_heads",
    "num_key_value_heads",
    "multi_query_group_num",
    "num_attention_groups",
)
"""What the number of KV heads is called, family by family; the first that is there counts."""

_MLA_TYPES: Final = frozenset(
    {
        *("axk1", "deepseek_v2", "deepseek_v3", "deepseek_v32", "deepseek_v4", "deepseek_v41", "dots3_note"),
        *("glm5_next", "glm5_next_text", "glm_moe_dsa", "glm4_moe_lite", "kimi_k2", "kimi_linear", "longcat_flash"),
        *("pangu_ultra_moe", "bailing_hybrid", "hy_v4", "deepseek_mtp"),
        *("mistral4", "youtu"),  # of these vLLM has no class of its own, and builds transformers' one
    }
)
"""Types of text configs whose ``kv_lora_rank`` means that vLLM runs MLA."""


def num_heads(config: Config) -> int:
    """Attention heads of the whole model."""
    return config.integer("num_attention_heads")


def num_kv_heads(config: Config) -> int:
    """KV heads of the whole model: as many as attention heads unless the config names fewer.

    ChatGLM's groups count only with ``multi_query_attention`` (vllm 0.33.0
    model_executor/models/chatglm.py:60).

    >>> chatglm = {"num_attention_heads": 32, "multi_query_group_num": 2}
    >>> num_kv_heads(Config("chatglm", chatglm | {"multi_query_attention": True}))
    2
    >>> num_kv_heads(Config("chatglm", chatglm))
    32
    """
    if config.model_type == "chatglm" and not config.flag("multi_query_attention"):
        return num_heads(config)
    for key in _KV_HEADS:
        heads = config.maybe_integer(key, least=1)
        if heads is not None:
            return heads
    return num_heads(config)


def head_dim(config: Config) -> int:
    """Elements of one head, of keys and of values alike.

    >>> head_dim(Config("llama", {"hidden_size": 4096, "num_attention_heads": 32}))
    128
    """
    for key in ("head_dim", "hidden_size_per_head"):
        size = config.maybe_integer(key)
        if size:
            return size
    hidden, heads = config.integer("hidden_size"), num_heads(config)
    if hidden < heads:
        raise config.error("hidden_size", f"{hidden} leaves nothing for each of {heads} attention heads")
    return hidden // heads


def is_mla(config: Config) -> bool:
    """Whether vLLM runs multi-head latent attention for this config."""
    return config.model_type in _MLA_TYPES and config.has("kv_lora_rank")


def latent_size(config: Config) -> int:
    """Elements of the vector that MLA keeps per token: compressed keys and values, and the keys' rotary part."""
    return config.integer("kv_lora_rank") + config.integer("qk_rope_head_dim", least=0)


def attention(config: Config, depth: int, *, window: int | None = None) -> LayerShape:
    """A layer of ordinary attention, with or without a window."""
    size = head_dim(config)
    kind = "full" if window is None else "sliding_window"
    return LayerShape(kind, window, num_kv_heads(config), size, size, depth=depth)  # type: ignore[arg-type]


def latent(config: Config, depth: int) -> LayerShape:
    """A layer of multi-head latent attention."""
    return LayerShape("mla", None, 1, latent_size(config), 0, depth=depth)
