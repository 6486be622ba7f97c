"""MiniCPM 3: has a latent rank and stores whole heads all the same, each of its rotary and other part.

vllm 0.33.0 model_executor/models/minicpm3.py.
"""

from __future__ import annotations

from collections.abc import Iterator

from sim.models.config import Config
from sim.models.geometry import num_heads
from sim.models.model import LayerShape


def layers(config: Config) -> Iterator[LayerShape]:
    """As many KV heads as attention heads."""
    size = config.integer("qk_nope_head_dim") + config.integer("qk_rope_head_dim")
    for depth in range(config.num_layers()):
        yield LayerShape("full", None, num_heads(config), size, size, depth=depth)
