"""Hunyuan V4: latent attention with the buffer of chosen tokens of sparse attention, without its indexer.

vllm 0.33.0 models/hy_v4/nvidia/model.py.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from sim.models.config import Config
from sim.models.geometry import latent
from sim.models.model import LayerShape


def layers(config: Config) -> Iterator[LayerShape]:
    """Latent attention everywhere."""
    width = config.integer("index_topk")
    for depth in range(config.num_layers()):
        yield replace(latent(config, depth), topk_buffer_width=width)
