"""DBRX: names of its own for heads, KV heads in ``attn_config`` (vllm 0.33.0 model_executor/models/dbrx.py:190)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from sim.models.config import Config
from sim.models.families import plain
from sim.models.geometry import num_heads
from sim.models.model import LayerShape


def layers(config: Config) -> Iterator[LayerShape]:
    """Full attention everywhere."""
    part = config.part("attn_config")
    heads = part.integer("kv_n_heads", num_heads(config)) if part else num_heads(config)
    for layer in plain.layers(config):
        yield replace(layer, num_kv_heads=heads)
