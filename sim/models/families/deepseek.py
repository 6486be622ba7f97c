"""DeepSeek V2 and V3, Kimi K2, GLM 4.7 Flash and their kin: multi-head latent attention everywhere.

vllm 0.33.0 model_executor/models/deepseek_v2.py; without ``kv_lora_rank`` ordinary attention.
"""

from __future__ import annotations

from collections.abc import Iterator

from sim.models.config import Config
from sim.models.geometry import attention, is_mla, latent
from sim.models.model import LayerShape


def layers(config: Config) -> Iterator[LayerShape]:
    """One latent vector per token and layer."""
    for depth in range(config.num_layers()):
        yield latent(config, depth) if is_mla(config) else attention(config, depth)


def drafts(config: Config) -> Iterator[LayerShape]:
    """One more layer per draft module."""
    for depth in range(config.integer("num_nextn_predict_layers", 0, least=0)):
        yield latent(config, depth)
