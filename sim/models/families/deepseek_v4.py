"""DeepSeek V4: windows everywhere; beside them vectors compressed 4 or 128 to one, and what is not compressed yet.

Rows are 584 bytes, pages multiples of 576 (vllm 0.33.0 models/deepseek_v4/attention.py and compressor.py).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Final

from sim.models.config import Config
from sim.models.model import LayerShape

LAYOUT = "BLHNC"

_ROW: Final[dict[str, Any]] = {"dtype": "fp8_ds_mla", "state_bytes": 584, "alignment": 576}
_RATES: Final = {"compressed_sparse_attention": 4, "heavily_compressed_attention": 128}


def layers(config: Config) -> Iterator[LayerShape]:
    """Per depth: the indexer and its state, the window, the compressed vectors, their state."""
    window = _window(config)
    for depth, ratio in enumerate(_ratios(config)):
        found = [window]
        if ratio > 1:
            size = config.integer("head_dim")
            main = LayerShape("mla", None, 1, size, 0, **_ROW, tokens_per_state=ratio)
            main = replace(main, backend="FLASHMLA_SPARSE_DSV4")
            found = [window, main, _recent(8, ratio, 2 * size)]
        if ratio == 4:
            found = [_indexer(config), _recent(4, 8, 4 * config.integer("index_head_dim")), *found[:2]]
            found.append(_recent(4, 8, 4 * config.integer("head_dim")))
        yield from (replace(layer, depth=depth) for layer in found)


def drafts(config: Config) -> Iterator[LayerShape]:
    """One window per draft module."""
    for depth in range(config.integer("num_nextn_predict_layers", 0, least=0)):
        yield replace(_window(config), depth=depth)


def _ratios(config: Config) -> list[int]:
    """Tokens per compressed vector of each layer, 0 or 1 where there are only windows."""
    count = config.num_layers()
    ratios = config.integers("compress_ratios", length=count)
    if ratios is None:
        types = config.words("layer_types", length=count) or [
            "compressed_sparse_attention" if depth > 2 and depth % 2 else "heavily_compressed_attention"
            for depth in range(count)
        ]
        ratios = [_RATES.get(kind, 0) for kind in types]
    for ratio in ratios:
        if ratio not in (0, 1, 4, 128):
            raise config.wrong("compress_ratios", "0, 1, 4 or 128 for each layer", ratio)
    return ratios[:count]


def _window(config: Config) -> LayerShape:
    window, size = config.integer("sliding_window", 128), config.integer("head_dim")
    return LayerShape("sliding_window_mla", window, 1, size, 0, **_ROW, block_size=64, backend="DEEPSEEK_SPARSE_SWA")


def _indexer(config: Config) -> LayerShape:
    keys = config.integer("index_head_dim")
    return LayerShape(
        *("mla", None, 1, keys + 4 * (keys // 128), 0),
        dtype="uint8",
        tokens_per_state=4,
        alignment=576,
        backend="DEEPSEEK_V4_INDEXER",
    )


def _recent(block_size: int, window: int, size: int) -> LayerShape:
    """What is not compressed yet, in float32."""
    return LayerShape(
        *("sliding_window_mla", window, 1, size, 0),
        dtype="float32",
        alignment=576,
        block_size=block_size,
        backend="CompressorBackend",
    )
