"""Nemotron NAS: layers pruned one by one, some without attention, some with fewer KV heads.

vllm 0.33.0 model_executor/models/nemotron_nas.py:90-180.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from sim.models.config import Config
from sim.models.geometry import head_dim, num_heads
from sim.models.model import LayerShape


def layers(config: Config) -> Iterator[LayerShape]:
    """Attention where a block has it."""
    count = config.num_layers()
    size = head_dim(config)
    for depth, block in enumerate((config.items("block_configs", length=count) or _none(config))[:count]):
        part = Config("block_configs", {"block": block}, where=config.where).part("block")
        attention = part.part("attention") if part else None
        if attention is None:
            raise config.wrong("block_configs", "an attention for each block", block)
        if attention.flag("no_op") or attention.flag("replace_with_linear"):
            yield LayerShape("no_cache", None, 0, 0, 0, depth=depth)
        else:
            heads = num_heads(config) // attention.integer("n_heads_in_group")
            yield replace(LayerShape("full", None, heads, size, size), depth=depth)


def _none(config: Config) -> list[object]:
    raise config.missing("block_configs")
