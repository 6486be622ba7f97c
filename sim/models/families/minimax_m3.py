"""MiniMax M3: full attention everywhere, with the keys of an indexer before it where it is sparse; blocks of 128.

vllm 0.33.0 models/minimax_m3/nvidia/model.py:99-110 and models/minimax_m3/common/indexer.py.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from sim.models.config import Config
from sim.models.geometry import attention
from sim.models.model import LayerShape


def layers(config: Config) -> Iterator[LayerShape]:
    """An indexer's keys before the attention of the same depth."""
    count = config.num_layers()
    sparse = config.part("sparse_attention_config")
    freq = sparse.integers("sparse_attention_freq") if sparse else None
    for depth in range(count):
        layer = attention(config, depth)
        if sparse and freq and depth < len(freq) and freq[depth]:
            size = sparse.integer("sparse_index_dim")
            yield LayerShape(
                "mla", None, 1, size, 0, cache_role="indexer", backend="MINIMAX_M3_SPARSE_INDEXER", depth=depth
            )
            layer = replace(layer, backend="MINIMAX_M3_SPARSE")
        yield layer
