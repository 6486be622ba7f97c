"""Step 3.5 and 3.7: windows where ``layer_types`` says so; entries beyond the layers belong to the draft modules.

vllm 0.33.0 model_executor/models/step3p5.py:425-456.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from sim.models.config import Config
from sim.models.geometry import attention
from sim.models.layer_types import SLIDING, known_types
from sim.models.model import LayerShape


def layers(config: Config) -> Iterator[LayerShape]:
    """The layers proper."""
    types = known_types(config)
    for depth in range(config.num_layers()):
        layer = attention(config, depth)
        if types[depth] == SLIDING:
            layer = replace(layer, kind="sliding_window", window=config.integer("sliding_window"))
        yield replace(layer, num_kv_heads=config.integer("num_attention_groups"))
