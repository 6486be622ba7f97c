"""Mamba 2 and Codestral Mamba: nothing but states (vllm 0.33.0 model_executor/models/mamba2.py:184)."""

from __future__ import annotations

from collections.abc import Iterator

from sim.models.config import Config
from sim.models.families.states import mamba2, state_layer
from sim.models.model import LayerShape

ATTENTION_FREE = True


def layers(config: Config) -> Iterator[LayerShape]:
    """One state per layer."""
    state = mamba2(
        int(config.number("expand", 2) * config.integer("hidden_size")),
        config.integer("conv_kernel"),
        config.integer("state_size"),
        heads=config.integer("num_heads"),
        head_dim=config.integer("head_dim"),
        groups=config.integer("n_groups"),
    )
    for depth in range(config.num_layers()):
        yield state_layer(state, depth)
