"""Command R and A (Cohere): a window in three of four layers, one token larger than the config says.

Cohere's window leaves the current token out (vllm 0.33.0 model_executor/models/commandr.py:244, cohere2_moe.py:256).
"""

from __future__ import annotations

from collections.abc import Iterator

from sim.models.config import Config
from sim.models.geometry import attention
from sim.models.layer_types import SLIDING, layer_types, model_window
from sim.models.model import LayerShape


def layers(config: Config) -> Iterator[LayerShape]:
    """Windows where ``layer_types`` says so; the first Command R has neither."""
    types, common = layer_types(config), model_window(config)
    for depth in range(config.num_layers()):
        sliding = types is not None and types[depth] == SLIDING and config.model_type != "cohere"
        window = config.maybe_integer("sliding_window") if sliding else None
        yield attention(config, depth, window=window + 1 if window else common)
