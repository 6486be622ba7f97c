"""Encoders (BERT, RoBERTa, ModernBERT): every token reads every other one and nothing is kept.

vllm 0.33.0 model_executor/layers/attention/encoder_only_attention.py: such a layer has no KV cache spec.
"""

from __future__ import annotations

from collections.abc import Iterator

from sim.models.config import Config
from sim.models.model import LayerShape

POOLING = True


def layers(config: Config) -> Iterator[LayerShape]:
    """Layers without a cache."""
    for depth in range(config.num_layers()):
        yield LayerShape("no_cache", None, 0, 0, 0, depth=depth)
