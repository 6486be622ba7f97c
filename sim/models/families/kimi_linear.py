"""Kimi Linear and K3: latent attention at the given depths, delta attention elsewhere.

Depths are counted from 1 (vllm 0.33.0 models/kimi_k3/nvidia/model.py:715 and 1506). Their latent attention has a class
of its own, which skips no layer (models/kimi_k3/nvidia/mla.py:319).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from sim.models.config import Config
from sim.models.families.states import delta_attention, state_layer
from sim.models.geometry import attention, is_mla, latent
from sim.models.model import LayerShape


def layers(config: Config) -> Iterator[LayerShape]:
    """States at the depths that ``kda_layers`` names."""
    linear = config.part("linear_attn_config")
    states = set(linear.integers("kda_layers") or ()) if linear else set()
    if linear is None:
        raise config.missing("linear_attn_config")
    heads, head_dim = linear.integer("num_heads"), linear.integer("head_dim")
    state = delta_attention(heads, head_dim, linear.integer("short_conv_kernel_size"))
    if linear.flag("use_full_rank_gate"):  # Kimi K3, whose kernel exports states every 16 tokens
        bounded = linear.has("gate_lower_bound") and head_dim == 128
        state = replace(
            state, checkpoints=int(bounded), checkpoint_alignment=16 if bounded else None, needs_hopper=True
        )
    for depth in range(config.num_layers()):
        if depth + 1 in states:
            yield state_layer(state, depth)
        else:
            yield replace(latent(config, depth), skippable=False) if is_mla(config) else attention(config, depth)
