"""Decoders whose layers are all alike: full attention, or one window that the whole model has (Mistral, Phi-3).

vllm 0.33.0 model_executor/layers/attention/attention.py:266: a layer without a window of its own gets the model's.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from sim.models.config import Config
from sim.models.geometry import attention
from sim.models.layer_types import model_window
from sim.models.model import LayerShape


def layers(config: Config) -> Iterator[LayerShape]:
    """Every layer is the same."""
    layer = attention(config, 0, window=model_window(config))
    for depth in range(config.num_layers()):
        yield replace(layer, depth=depth)


def drafts(config: Config) -> Iterator[LayerShape]:
    """One more layer per draft module."""
    layer = attention(config, 0, window=model_window(config))
    for depth in range(config.integer("num_nextn_predict_layers", 0, least=0)):
        yield replace(layer, depth=depth)
