"""Llama 4: layers with rotary embedding read within chunks, every fourth has none and reads everything.

vllm 0.33.0 model_executor/models/llama4.py:210-260; without a chunk size all layers read everything.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from sim.models.config import Config
from sim.models.geometry import attention
from sim.models.model import LayerShape


def layers(config: Config) -> Iterator[LayerShape]:
    """Chunked layers, and those without rotary embedding."""
    count = config.num_layers()
    chunk = config.maybe_integer("attention_chunk_size", least=1)
    period = config.integer("no_rope_layer_interval", 4)
    rotary = config.integers("no_rope_layers") or [int((depth + 1) % period != 0) for depth in range(count)]
    if len(rotary) < count:
        raise config.error("no_rope_layers", f"has {len(rotary)} entries for {count} layers")
    for depth in range(count):
        layer = attention(config, depth)
        yield replace(layer, kind="chunked_local", chunk_size=chunk) if chunk and rotary[depth] else layer
