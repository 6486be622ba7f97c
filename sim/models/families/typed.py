"""Decoders whose ``layer_types`` say which layers have the window: Llama and its kin, Granite, EXAONE, OLMo 3.

vllm 0.33.0 model_executor/models/llama.py:185-205; also what vLLM builds of a transformers class
(model_executor/models/transformers/base.py).
"""

from __future__ import annotations

from collections.abc import Iterator

from sim.models.config import Config
from sim.models.geometry import attention
from sim.models.layer_types import SLIDING, layer_types, model_window, window_of
from sim.models.model import LayerShape


def layers(config: Config) -> Iterator[LayerShape]:
    """A window where ``layer_types`` says so; where there are none, what the model has."""
    types, common, own = layer_types(config), model_window(config), window_of(config)
    for depth in range(config.num_layers()):
        sliding = types is not None and types[depth] == SLIDING
        if sliding and not config.knows("sliding_window") and not own:
            raise config.missing("sliding_window")
        yield attention(config, depth, window=(own or common) if sliding else common)
