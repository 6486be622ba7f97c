"""Falcon and StarCoder: one KV head for all (multi-query), or groups of them in the larger ones.

vllm 0.33.0 transformers_utils/model_arch_config_convertor.py:479.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from sim.models.config import Config
from sim.models.families import plain
from sim.models.model import LayerShape


def layers(config: Config) -> Iterator[LayerShape]:
    """Full attention with as many KV heads as the decoder's architecture has."""
    one = config.flag("multi_query", True) and not config.flag("new_decoder_architecture")
    for layer in plain.layers(config):
        yield replace(layer, num_kv_heads=1) if one else layer
