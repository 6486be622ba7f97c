"""Gemma 4: windows with many narrow heads, full attention with few wide ones, shared caches at the end.

Keys that are tied to values save nothing: both are stored (vllm 0.33.0 model_executor/models/gemma4.py:380-470).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from sim.models.config import Config
from sim.models.geometry import attention, num_kv_heads
from sim.models.layer_types import SLIDING, known_types
from sim.models.model import LayerShape


def layers(config: Config) -> Iterator[LayerShape]:
    """The layers in order; those that read an earlier layer of their kind have no cache."""
    types = known_types(config)
    count = config.num_layers()
    shared = config.integer("num_kv_shared_layers", 0, least=0)
    for depth in range(count):
        if depth >= count - shared > 0 and types[depth] in types[: count - shared]:
            yield LayerShape("no_cache", None, 0, 0, 0, depth=depth)
        else:
            yield _layer(config, depth, types)


def _layer(config: Config, depth: int, types: Sequence[str]) -> LayerShape:
    if types[depth] == SLIDING:
        return attention(config, depth, window=config.integer("sliding_window"))
    wide = config.integer("global_head_dim", 512)
    heads = num_kv_heads(config)
    if config.flag("attention_k_eq_v"):
        heads = config.integer("num_global_key_value_heads", heads)
    return replace(attention(config, depth), num_kv_heads=heads, head_size=wide, head_size_v=wide)
