"""Qwen 4 Exp (Qwen3.8-Flash-Next): gated delta nets, and attention whose indexer reads keys averaged over a few tokens.

Per layer of attention: keys not averaged yet, in a ring; the averaged ones; keys and values. Layers with embeddings of
n-grams keep a convolution over all residual streams, which every rank holds (vllm 0.33.0
models/qwen4_exp/nvidia/qsa.py, models/qwen4_exp/common/qsa_cache.py:805-875 and ple_layer.py:180-220).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Final

from sim.models.config import Config
from sim.models.families.states import gated_delta_net, state_layer
from sim.models.geometry import attention
from sim.models.layer_types import FULL, LINEAR, known_types
from sim.models.model import LayerShape, StateShape

LAYOUT = "BLNHC"

_POSITIONS: Final = 12
"""Elements that three positions of 64 bits take beside a key of an image's token."""


def layers(config: Config) -> Iterator[LayerShape]:
    """The convolution of n-grams, if there is one, comes before the states or the attention of its depth."""
    gate = config.word("output_gate_type")
    if gate not in ("sigmoid", "silu"):
        raise config.wrong("output_gate_type", "sigmoid or silu", gate)
    types = known_types(config)
    grams = set(config.integers("ple_layer_ids") or ())
    for depth in range(config.num_layers()):
        if depth + 1 in grams:
            yield state_layer(_ngrams(config), depth)
        if types[depth] == LINEAR:
            yield state_layer(gated_delta_net(config, config.word("mamba_ssm_dtype")), depth)
        elif types[depth] in (FULL, "indexed_attention"):
            yield from _indexed(config, depth)
        else:
            raise config.wrong("layer_types", f"{FULL} or {LINEAR} for each layer", types[depth])


def drafts(config: Config) -> Iterator[LayerShape]:
    """Attention with its indexer per draft module."""
    for depth in range(config.integer("mtp_num_hidden_layers", 1, least=0)):
        yield from _indexed(config, depth)


def _indexed(config: Config, depth: int) -> Iterator[LayerShape]:
    size, ratio = config.integer("indexer_head_dim"), config.integer("indexer_compress_ratio")
    own: dict[str, Any] = {"dtype": "bfloat16", "backend": "QSA_STATE", "depth": depth}
    rope = config.get("rope_parameters")
    sees = "Qwen4ExpForCausalLM" not in (config.get("architectures") or ())
    positions = _POSITIONS if sees and isinstance(rope, dict) and rope.get("mrope_section") else 0
    yield LayerShape("circular", None, 1, -(-size // 4) * 4 + positions, 0, block_size=ratio, ring="multiple", **own)
    yield LayerShape("mla", None, 1, size, 0, tokens_per_state=ratio, **own)
    yield replace(attention(config, depth), backend="QSA")


def _ngrams(config: Config) -> StateShape:
    rows = (config.integer("ple_conv_kernel_size", 4) - 1) * config.integer("ngram_size", 3)
    channels = config.integer("hidden_size") * config.integer("hc_count", 4)
    return StateShape(
        ((rows, channels),),
        (None,),
        "short_conv",
        grows_with_drafts=True,
        checkpoints=1,
        checkpoint_alignment=1,
        on_block_grid=True,
        tp_replicated=True,
    )
