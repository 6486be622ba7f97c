"""HRM Text: two stacks of layers run in cycles, each pass with a cache of its own.

vllm 0.33.0 model_executor/models/hrm_text.py.
"""

from __future__ import annotations

from collections.abc import Iterator

from sim.models.config import MOST_LAYERS, Config
from sim.models.geometry import head_dim, num_heads
from sim.models.model import LayerShape


def layers(config: Config) -> Iterator[LayerShape]:
    """One cache per layer and pass."""
    size, heads = head_dim(config), num_heads(config)
    count = config.maybe_integer("num_layers_per_stack", least=1)
    if count is None:
        count = config.num_layers()
    total = count * config.integer("H_cycles", 2) * (config.integer("L_cycles", 3) + 1)
    if total > MOST_LAYERS:
        raise config.wrong("H_cycles", f"at most {MOST_LAYERS:,} layers and passes", total)
    for depth in range(total):
        yield LayerShape("full", None, heads, size, size, depth=depth)
