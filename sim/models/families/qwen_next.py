"""Qwen3-Next, 3.5 and 3.6: gated delta nets, every fourth layer full attention.

Qwen3-Next keeps its states in the model's dtype, the later ones in ``mamba_ssm_dtype`` (vllm 0.33.0
model_executor/models/qwen3_next.py and qwen3_5.py).
"""

from __future__ import annotations

from collections.abc import Iterator

from sim.models.config import Config
from sim.models.families.states import gated_delta_net, state_layer
from sim.models.geometry import attention
from sim.models.layer_types import FULL, LINEAR, known_types
from sim.models.model import LayerShape


def layers(config: Config) -> Iterator[LayerShape]:
    """States and attention, as ``layer_types`` says."""
    types = known_types(config)
    dtype = None if config.model_type == "qwen3_next" else config.word("mamba_ssm_dtype")
    for depth in range(config.num_layers()):
        if types[depth] not in (FULL, LINEAR):
            raise config.wrong("layer_types", f"{FULL} or {LINEAR} for each layer", types[depth])
        yield (attention(config, depth) if types[depth] == FULL else state_layer(gated_delta_net(config, dtype), depth))


def drafts(config: Config) -> Iterator[LayerShape]:
    """Full attention per draft module: one unless the config counts them."""
    key = "num_nextn_predict_layers" if config.model_type == "qwen3_next" else "mtp_num_hidden_layers"
    for depth in range(config.integer(key, 1, least=0)):
        yield attention(config, depth)
