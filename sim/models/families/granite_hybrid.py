"""Granite 4: Mamba 2, attention where ``layer_types`` says so.

vllm 0.33.0 model_executor/models/granitemoehybrid.py:617.
"""

from __future__ import annotations

from collections.abc import Iterator

from sim.models.config import Config
from sim.models.families.states import mamba2, state_layer
from sim.models.geometry import attention
from sim.models.layer_types import FULL, LINEAR, known_types
from sim.models.model import LayerShape


def layers(config: Config) -> Iterator[LayerShape]:
    """States and attention."""
    inner, heads = config.integer("mamba_expand") * config.integer("hidden_size"), config.integer("mamba_n_heads")
    head_dim = inner // heads if config.get("mamba_d_head") == "auto" else config.integer("mamba_d_head")
    state = mamba2(
        inner,
        config.integer("mamba_d_conv"),
        config.integer("mamba_d_state"),
        heads=heads,
        head_dim=head_dim,
        groups=config.integer("mamba_n_groups"),
    )
    types = known_types(config)
    for depth in range(config.num_layers()):
        if types[depth] not in (FULL, LINEAR):
            raise config.wrong("layer_types", "attention or mamba for each layer", types[depth])
        yield attention(config, depth) if types[depth] == FULL else state_layer(state, depth)
