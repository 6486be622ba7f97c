"""gpt-oss: layers 0, 2, 4, ... have the window, whatever ``layer_types`` says; sinks cost no cache.

vllm 0.33.0 model_executor/models/gpt_oss.py:175.
"""

from __future__ import annotations

from collections.abc import Iterator

from sim.models.config import Config
from sim.models.geometry import attention
from sim.models.layer_types import model_window
from sim.models.model import LayerShape

SINKS = True


def layers(config: Config) -> Iterator[LayerShape]:
    """Every other layer has the window."""
    common, window = model_window(config), config.maybe_integer("sliding_window")
    for depth in range(config.num_layers()):
        yield attention(config, depth, window=window or common if depth % 2 == 0 else common)
