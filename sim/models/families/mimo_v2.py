"""MiMo V2: windows and full attention with heads of their own, values narrower than keys.

vllm 0.33.0 model_executor/models/mimo_v2.py:385-440; its kernels store K and V of different widths and no inline
scales.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from sim.models.config import Config
from sim.models.model import LayerShape

_BACKEND = "FLASH_ATTN_DIFFKV"


def layers(config: Config) -> Iterator[LayerShape]:
    """A 1 in ``hybrid_layer_pattern`` is a window."""
    count = config.num_layers()
    pattern = config.integers("hybrid_layer_pattern", length=count)
    if pattern is None:
        raise config.missing("hybrid_layer_pattern")
    for depth in range(count):
        yield _window(config, depth) if pattern[depth] == 1 else _full(config, depth)


def drafts(config: Config) -> Iterator[LayerShape]:
    """One window: vLLM runs the first draft module only."""
    yield _window(config, 0)


def model_kv_heads(config: Config, layers: Sequence[LayerShape]) -> int:
    """KV heads that vLLM counts where it asks about the whole model: those of full attention."""
    del layers
    return config.integer("num_key_value_heads")


def _full(config: Config, depth: int) -> LayerShape:
    size = config.integer("head_dim")
    values = config.integer("v_head_dim", size)
    heads = config.integer("num_key_value_heads")
    return LayerShape("full", None, heads, size, values, depth=depth, backend=_BACKEND if values != size else None)


def _window(config: Config, depth: int) -> LayerShape:
    size = config.integer("swa_head_dim")
    values = config.integer("swa_v_head_dim", size)
    heads, window = config.integer("swa_num_key_value_heads"), config.integer("sliding_window_size")
    backend = _BACKEND if values != size else None
    return LayerShape("sliding_window", window, heads, size, values, depth=depth, backend=backend)
