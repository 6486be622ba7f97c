"""EXAONE MoE: windows where ``layer_types`` says so, each with a size of its own where ``sliding_windows`` lists them.

vllm 0.33.0 model_executor/models/exaone_moe.py:228-252.
"""

from __future__ import annotations

from collections.abc import Iterator

from sim.models.config import Config
from sim.models.geometry import attention
from sim.models.layer_types import FULL, layer_types, model_window
from sim.models.model import LayerShape


def layers(config: Config) -> Iterator[LayerShape]:
    """Full attention, or the window of the layer."""
    count = config.num_layers()
    types, common = layer_types(config) or [FULL] * count, model_window(config)
    sizes = config.integers("sliding_windows", length=count)
    for depth in range(count):
        if types[depth] == FULL:
            yield attention(config, depth, window=common)
        else:
            yield attention(config, depth, window=sizes[depth] if sizes else config.integer("sliding_window"))
