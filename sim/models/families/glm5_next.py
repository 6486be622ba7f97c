"""GLM 5 Next (GLM-5.3-Flash): delta attention, and latent attention whose indexer reads keys pooled over a few tokens.

Per layer of attention: the pooled keys; what is not pooled yet, in a ring that no rank shares; the latent vectors
(vllm 0.33.0 models/glm5next/common/attention.py:75-185 and kda.py:168-205).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from sim.models.config import Config
from sim.models.families.deepseek_sparse import indexer
from sim.models.families.states import delta_attention, state_layer
from sim.models.geometry import latent
from sim.models.layer_types import FULL, LINEAR, layer_types
from sim.models.model import LayerShape, StateShape

LAYOUT = "BLHNC"

_READ_UNASKED: Final = ("mhc", "topk_method", "scoring_func", "indexer_rope_interleave", "mla_use_nope")
"""Fields without a default in the config class that vLLM reads all the same."""

_ROW: Final = 128
"""Chosen tokens are counted in rows of so many (models/glm5next/common/model.py:104)."""


def layers(config: Config) -> Iterator[LayerShape]:
    """Delta attention but for every fourth layer, unless ``layer_types`` says otherwise."""
    for key in _READ_UNASKED:
        if not config.has(key):
            raise config.missing(key)
    count = config.num_layers()
    types = layer_types(config) or [LINEAR if depth % 4 != 3 else FULL for depth in range(count)]
    for depth in range(count):
        if types[depth] == LINEAR:
            yield state_layer(_state(config), depth)
        else:
            yield from _indexed(config, depth)


def drafts(config: Config) -> Iterator[LayerShape]:
    """Latent attention with its indexer per draft module."""
    for depth in range(config.integer("num_nextn_predict_layers", 0, least=0)):
        yield from _indexed(config, depth)


def _state(config: Config) -> StateShape:
    """FlashKDA exports states every 16 tokens where the gate is bounded."""
    own = config.part("linear_attn_config")
    heads, size, taps = (
        own.integer(short) if own is not None and own.has(short) else config.integer(full, default)
        for short, full, default in (
            ("num_heads", "linear_num_heads", 64),
            ("head_dim", "linear_head_dim", 128),
            ("short_conv_kernel_size", "linear_conv_kernel_dim", 4),
        )
    )
    exports = size == 128
    return replace(
        delta_attention(heads, size, taps),
        checkpoints=int(exports),
        checkpoint_alignment=16 if exports else None,
        needs_hopper=True,
    )


def _indexed(config: Config, depth: int) -> Iterator[LayerShape]:
    pool, size = config.integer("index_kpool", 16, least=2), config.integer("index_head_dim")
    yield replace(indexer(config, depth), tokens_per_state=pool, backend="GLM5_NEXT_INDEXER")
    yield LayerShape(
        *("circular", None, 2, size, 0),
        dtype="bfloat16",
        block_size=pool,
        ring="power of two",
        replicated=True,
        backend="KPOOL_TAIL",
        depth=depth,
    )
    width = -(-(config.integer("index_topk") + pool - 1) // _ROW) * _ROW
    yield replace(latent(config, depth), backend="sparse", topk_buffer_width=width, is_index_group_leader=True)
