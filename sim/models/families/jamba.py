"""Jamba: one attention layer per period, Mamba elsewhere (vllm 0.33.0 model_executor/models/jamba.py)."""

from __future__ import annotations

from collections.abc import Iterator

from sim.models.config import Config
from sim.models.families.states import mamba1, state_layer
from sim.models.geometry import attention
from sim.models.model import LayerShape


def layers(config: Config) -> Iterator[LayerShape]:
    """Attention at ``attn_layer_offset`` of every ``attn_layer_period`` layers."""
    inner = config.integer("mamba_expand") * config.integer("hidden_size")
    state = mamba1(inner, config.integer("mamba_d_conv"), config.integer("mamba_d_state"))
    period, offset = config.integer("attn_layer_period"), config.integer("attn_layer_offset", least=0)
    for depth in range(config.num_layers()):
        yield attention(config, depth) if depth % period == offset else state_layer(state, depth)
