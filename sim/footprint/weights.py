"""Bytes of weights on each GPU: what the model has, by data type, dealt out to ranks."""

from __future__ import annotations

from typing import Final

from sim.errors import InputError, nearest
from sim.footprint.amount import Amount
from sim.models import Model
from sim.units import cdiv

_ONLINE_BYTES: Final = {
    "fp8": 1.0,
    "fp8_per_tensor": 1.0,
    "fp8_per_block": 1.0,
    "int8_per_channel_weight_only": 1.0,
    "experts_int8": 1.0,
    "mxfp8": 1.03,
    "mxfp4": 0.53,
    "bitsandbytes": 0.56,
    "awq": 0.53,
    "gptq": 0.53,
    "awq_marlin": 0.53,
    "gptq_marlin": 0.53,
    "modelopt": 1.0,
    "modelopt_fp4": 0.56,
}
"""Bytes of one weight, scales included, under ``--quantization``; embeddings stay as they are."""

_KNOWN_BY_CHECKPOINT: Final = ("compressed-tensors", "auto-round", "gguf", "quark", "torchao", "humming", "inc", "moe_wna16")
"""Methods whose bits only the checkpoint knows; what the model's config says holds."""

_SPREAD: Final = 0.04
"""Left out of the count: norms, biases, scales, vision towers, padding of the vocabulary."""


def weight_bytes(
    model: Model,
    *,
    tensor_parallel_size: int = 1,
    pipeline_parallel_size: int = 1,
    expert_ranks: int = 1,
    quantization: str | None = None,
    offloaded_bytes: int = 0,
) -> Amount:
    """Weights on one GPU, an estimate: those of one pipeline stage, experts dealt out to ``expert_ranks`` GPUs.

    Raises InputError for a quantization that vLLM does not know.
    """
    dense_bytes, expert_bytes = _bytes_per_param(model, quantization)
    dense = (model.params_total - model.expert_params) * dense_bytes / tensor_parallel_size
    experts = model.expert_params * expert_bytes / max(expert_ranks, tensor_parallel_size)
    total = cdiv(int(dense + experts), pipeline_parallel_size) - offloaded_bytes
    return Amount(max(0, total), "estimate", int(_SPREAD * max(0, total)))


def _bytes_per_param(model: Model, quantization: str | None) -> tuple[float, float]:
    as_published = model.weight_bytes_per_param, model.expert_bytes_per_param
    if quantization is None or quantization in _KNOWN_BY_CHECKPOINT:
        return as_published
    if quantization not in _ONLINE_BYTES:
        close = nearest(quantization, [*_ONLINE_BYTES, *_KNOWN_BY_CHECKPOINT])
        hint = f"; nearest is {close!r}" if close else ""
        raise InputError(f"got {quantization!r}, which is no known method{hint}", where="--quantization")
    return min(as_published[0], _ONLINE_BYTES[quantization]), min(as_published[1], _ONLINE_BYTES[quantization])
