"""How many weights a decoder-only transformer has, counted from the fields of its config.json.

Counted: attention projections, gated MLP or experts with their router, input embedding and output head. Left out:
norms, biases and attention sinks, together less than 0.1 % of the models in the catalogue.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class ParamCounts:
    """Weights: all of them, those one token is multiplied with, and the routed experts of all layers together."""

    total: int
    active: int
    expert: int


def count_params(config: Mapping[str, Any]) -> ParamCounts:
    """The weights of the model that ``config`` describes.

    The input embedding is looked up, not multiplied, so it is not active; a tied output head shares its weights and is.
    """
    hidden, vocab = config["hidden_size"], config["vocab_size"]
    layers, experts = config["num_hidden_layers"], config.get("num_local_experts", 0)
    mlp = 3 * hidden * config["intermediate_size"]
    per_layer = _attention_params(config) + (hidden * experts if experts else mlp)
    dense = layers * per_layer + vocab * hidden
    expert = layers * experts * mlp
    embedding = 0 if config["tie_word_embeddings"] else vocab * hidden
    active_experts = layers * config.get("num_experts_per_tok", 0) * mlp
    return ParamCounts(total=dense + expert + embedding, active=dense + active_experts, expert=expert)


def _attention_params(config: Mapping[str, Any]) -> int:
    hidden: int = config["hidden_size"]
    query: int = config["num_attention_heads"] * config["head_dim"]
    key_and_value: int = 2 * config["num_key_value_heads"] * config["head_dim"]
    return hidden * (query + key_and_value) + query * hidden
