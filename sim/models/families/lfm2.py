"""LFM2: short convolutions, attention where ``layer_types`` says so.

vllm 0.33.0 model_executor/models/lfm2.py:556 and lfm2_moe.py:546.
"""

from __future__ import annotations

from collections.abc import Iterator

from sim.models.config import Config
from sim.models.families.states import short_conv, state_layer
from sim.models.geometry import attention
from sim.models.layer_types import FULL
from sim.models.model import LayerShape


def layers(config: Config) -> Iterator[LayerShape]:
    """Convolutions and attention."""
    count = config.num_layers()
    dense = config.model_type == "lfm2"
    channels = config.integer("conv_dim" if dense else "hidden_size")
    state = short_conv(channels, config.integer("conv_L_cache"))
    types = config.words("layer_types", length=count)
    if types is None:
        chosen = config.integers("full_attn_idxs") if dense else None
        if chosen is None and not dense:
            raise config.missing("layer_types")
        types = [FULL if chosen is None or depth in chosen else "conv" for depth in range(count)]
    for depth in range(count):
        yield attention(config, depth) if types[depth] == FULL else state_layer(state, depth)
