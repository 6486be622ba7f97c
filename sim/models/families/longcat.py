"""LongCat Flash: two blocks of latent attention per layer (vllm 0.33.0 model_executor/models/longcat_flash.py)."""

from __future__ import annotations

from collections.abc import Iterator

from sim.models.config import Config
from sim.models.geometry import latent
from sim.models.model import LayerShape


def layers(config: Config) -> Iterator[LayerShape]:
    """Two caches per depth."""
    for depth in range(config.num_layers("num_layers")):
        yield latent(config, depth)
        yield latent(config, depth)
