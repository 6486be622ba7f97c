"""Mamba and Falcon Mamba: nothing but states (vllm 0.33.0 model_executor/models/mamba.py:234)."""

from __future__ import annotations

from collections.abc import Iterator

from sim.models.config import Config
from sim.models.families.states import mamba1, state_layer
from sim.models.model import LayerShape

ATTENTION_FREE = True


def layers(config: Config) -> Iterator[LayerShape]:
    """One state per layer."""
    inner = config.maybe_integer("intermediate_size", least=1)
    if inner is None:
        inner = int(config.number("expand", 2) * config.integer("hidden_size"))
    state = mamba1(inner, config.integer("conv_kernel"), config.integer("state_size"))
    for depth in range(config.num_layers()):
        yield state_layer(state, depth)
