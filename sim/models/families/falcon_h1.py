"""Falcon H1: attention and Mamba 2 side by side in every layer (vllm 0.33.0 model_executor/models/falcon_h1.py)."""

from __future__ import annotations

from collections.abc import Iterator

from sim.models.config import Config
from sim.models.families.states import mamba2, state_layer
from sim.models.geometry import attention
from sim.models.model import LayerShape


def layers(config: Config) -> Iterator[LayerShape]:
    """Attention, then the state of the same depth."""
    inner = config.maybe_integer("mamba_d_ssm", least=1)
    if inner is None:
        inner = int(config.number("mamba_expand", 2) * config.integer("hidden_size"))
    heads = config.integer("mamba_n_heads")
    state = mamba2(
        inner,
        config.integer("mamba_d_conv"),
        config.integer("mamba_d_state"),
        heads=heads,
        head_dim=inner // heads if config.get("mamba_d_head") == "auto" else config.integer("mamba_d_head"),
        groups=config.integer("mamba_n_groups"),
    )
    for depth in range(config.num_layers()):
        yield attention(config, depth)
        yield state_layer(state, depth)
