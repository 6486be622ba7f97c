"""Gemma 3n: four windows, then full attention; the last layers read the cache of an earlier layer of their kind.

vllm 0.33.0 model_executor/models/gemma3n.py:325-372.
"""

from __future__ import annotations

from collections.abc import Iterator

from sim.models.config import Config
from sim.models.geometry import attention
from sim.models.layer_types import SLIDING, known_types
from sim.models.model import LayerShape


def layers(config: Config) -> Iterator[LayerShape]:
    """The layers with a cache of their own, and those without."""
    count = config.num_layers()
    types = known_types(config)
    shared = config.integer("num_kv_shared_layers", 0, least=0)
    for depth in range(count):
        if depth >= count - shared > 0:
            yield LayerShape("no_cache", None, 0, 0, 0, depth=depth)
        else:
            yield attention(config, depth, window=config.integer("sliding_window") if types[depth] == SLIDING else None)
