"""Whisper: self attention and cross attention in every decoder layer; the encoder keeps nothing.

vllm 0.33.0 model_executor/models/whisper.py.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from sim.models.config import Config
from sim.models.model import LayerShape


def layers(config: Config) -> Iterator[LayerShape]:
    """Self, then cross attention of the same depth."""
    heads = config.integer("decoder_attention_heads")
    size = config.integer("d_model") // heads
    for depth in range(config.num_layers("decoder_layers")):
        layer = LayerShape("full", None, heads, size, size, depth=depth)
        yield layer
        yield replace(layer, kind="cross")
