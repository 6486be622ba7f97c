"""Zamba2: shared attention at the hybrid depths and Mamba 2 at every depth; all attention is constructed first.

vllm 0.33.0 model_executor/models/zamba2.py:720-790 and 869.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from sim.models.config import Config
from sim.models.families.states import mamba2, state_layer
from sim.models.geometry import attention, num_heads
from sim.models.model import LayerShape

_DEFAULT = ["mamba"] + (["mamba"] * 5 + ["hybrid"]) * 7 + ["mamba"] * 4 + ["hybrid"] + ["mamba"] * 3 + ["hybrid"]
_DEFAULT += ["mamba"] * 2


def layers(config: Config) -> Iterator[LayerShape]:
    """Attention first, whatever its depth, then the states."""
    blocks: Sequence[str] = config.words("layers_block_type") or _DEFAULT
    hidden = config.integer("hidden_size")
    size = 2 * hidden // num_heads(config)
    hybrid = [depth for depth, block in enumerate(blocks) if block == "hybrid"]
    for number, depth in _numbered(hybrid, config.integer("num_mem_blocks", 1)):
        yield replace(attention(config, depth), head_size=size, head_size_v=size, number=number)
    inner, heads = config.integer("mamba_expand") * hidden, config.integer("n_mamba_heads")
    state = mamba2(
        inner,
        config.integer("mamba_d_conv"),
        config.integer("mamba_d_state"),
        heads=heads,
        head_dim=inner // heads,
        groups=config.integer("mamba_ngroups"),
    )
    for depth in range(len(blocks)):
        yield state_layer(state, depth)


def _numbered(depths: Sequence[int], shared: int) -> Iterator[tuple[int, int]]:
    """Attention as it is constructed: with ``shared`` sets of weights in turn, all of the first set come first.

    The numbers are those in vLLM's names (vllm 0.33.0 model_executor/models/zamba2.py:186-205).

    >>> list(_numbered([6, 12, 18], 2))
    [(0, 6), (1, 18), (2, 12)]
    """
    for turn in range(shared):
        first = turn * (len(depths) + shared - 1) // shared
        yield from enumerate(depths[turn::shared], first)
