"""Nemotron H: a letter per layer, M a Mamba 2 state, * attention, the others no cache.

States are float32 unless the config or a flag says otherwise (vllm 0.33.0 model_executor/models/nemotron_h.py and
config.py:880).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from sim.models.config import MOST_LAYERS, Config
from sim.models.families.states import mamba2, state_layer
from sim.models.geometry import attention
from sim.models.layer_types import window_of
from sim.models.model import LayerShape

_LETTERS: Final = {
    "mamba": "M",
    "linear_attention": "M",
    "attention": "*",
    "full_attention": "*",
    "moe": "E",
    "mlp": "-",
}


def layers(config: Config) -> Iterator[LayerShape]:
    """The layers that have a cache; the others count for the depth."""
    heads, head_dim = config.integer("mamba_num_heads"), config.integer("mamba_head_dim")
    taps = "mamba_d_conv" if config.has("mamba_d_conv") else "conv_kernel"
    groups = "mamba_n_groups" if config.has("mamba_n_groups") else "n_groups"
    state = mamba2(
        heads * head_dim,
        config.integer(taps),
        config.integer("ssm_state_size"),
        heads=heads,
        head_dim=head_dim,
        groups=config.integer(groups),
        dtype=config.word("mamba_ssm_cache_dtype") or "float32",
    )
    window = window_of(config)
    for depth, letter in enumerate(pattern_of(config)):
        if letter == "M":
            yield state_layer(state, depth)
        elif letter == "*":
            yield attention(config, depth, window=window)
        else:
            yield LayerShape("no_cache", None, 0, 0, 0, depth=depth)


def pattern_of(config: Config) -> str:
    """A letter per layer, from whichever field has it."""
    pattern = config.word("hybrid_override_pattern")
    if pattern is None:
        names = config.words("layer_types") or config.words("layers_block_type")
        names = names or ["linear_attention", "moe", "full_attention", "mlp"]
        pattern = "".join(_LETTERS.get(name, "?") for name in names)
    if len(pattern) > MOST_LAYERS or any(letter not in "M*-E" for letter in pattern):
        raise config.wrong("hybrid_override_pattern", "a letter per layer, M, *, - or E", pattern)
    return pattern
