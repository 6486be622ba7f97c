"""DeepSeek V3.2 and GLM 5: an indexer, with a cache of its own, chooses the tokens that latent attention reads.

A row of keys is fp8 with a scale of four bytes per 128. Some models share one indexer's choice among several layers,
which then have none (vllm 0.33.0 models/deepseek_v32/attention.py:160-200).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from sim.models.config import Config
from sim.models.geometry import latent
from sim.models.model import LayerShape


def layers(config: Config) -> Iterator[LayerShape]:
    """Keys of the indexer, where there is one, before the latent vectors of the same depth."""
    for depth in range(config.num_layers()):
        yield from _decoder_layer(config, depth, leads=_has_indexer(config, depth))


def drafts(config: Config) -> Iterator[LayerShape]:
    """Draft modules always have an indexer."""
    for depth in range(config.integer("num_nextn_predict_layers", 0, least=0)):
        yield from _decoder_layer(config, depth, leads=True)


def _decoder_layer(config: Config, depth: int, *, leads: bool) -> Iterator[LayerShape]:
    if leads:
        yield indexer(config, depth)
    yield replace(
        latent(config, depth),
        backend="sparse",
        topk_buffer_width=config.integer("index_topk"),
        is_index_group_leader=leads,
    )


def indexer(config: Config, depth: int) -> LayerShape:
    """The keys of one indexer."""
    keys = config.integer("index_head_dim")
    row = keys + 4 * (keys // 128)
    return LayerShape(
        "mla", None, 1, row, 0, dtype="uint8", cache_role="indexer", backend="DEEPSEEK_V32_INDEXER", depth=depth
    )


def _has_indexer(config: Config, depth: int) -> bool:
    pattern = config.get("index_topk_pattern")
    if pattern is None:
        freq = config.integer("index_topk_freq", 1)
        skipped = config.integer("index_skip_topk_offset", 2, least=0)
        return max(depth - skipped + 1, 0) % freq == 0
    if not isinstance(pattern, str | list):
        raise config.wrong("index_topk_pattern", "a text of F and S", pattern)
    return depth >= len(pattern) or pattern[depth] != "S"
