"""OLMo Hybrid: gated delta nets, every fourth layer full attention.

vllm 0.33.0 model_executor/models/olmo_hybrid.py:453.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from sim.models.config import Config
from sim.models.families.states import delta_net, state_layer
from sim.models.geometry import attention, num_heads
from sim.models.layer_types import LINEAR, known_types
from sim.models.model import LayerShape


def layers(config: Config) -> Iterator[LayerShape]:
    """States, and attention where ``layer_types`` says so; sizes of heads follow from the hidden size."""
    keys = config.integer("linear_num_key_heads", num_heads(config))
    values = config.integer("linear_num_value_heads", num_heads(config))
    key_dim = config.integer("linear_key_head_dim", int(0.75 * config.integer("hidden_size") / keys))
    value_dim = config.integer("linear_value_head_dim", 2 * key_dim)
    taps = config.integer("linear_conv_kernel_dim")
    state = replace(
        delta_net((keys, values), (key_dim, value_dim), taps, None),
        checkpoints=0,
        checkpoint_alignment=None,
        on_block_grid=False,
    )
    types = known_types(config)
    for depth in range(config.num_layers()):
        yield state_layer(state, depth) if types[depth] == LINEAR else attention(config, depth)
