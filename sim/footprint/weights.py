"""Bytes of weights on each GPU: what the model has, by data type, dealt out to ranks."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from sim.errors import InputError, nearest
from sim.footprint.amount import Amount
from sim.models import Model, weight_bytes
from sim.units import GIB

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

_KNOWN_BY_CHECKPOINT: Final = (
    "compressed-tensors",
    "auto-round",
    "gguf",
    "quark",
    "torchao",
    "humming",
    "inc",
    "moe_wna16",
)
"""Methods whose bits only the checkpoint knows; what the model's config says holds."""

_SPREAD, _SPREAD_OF_QUANTIZED_EXPERTS, _VISION_TOWER = 0.04, 0.09, 5 * GIB // 4
"""Left out of the count: norms, biases, scales, padding (quantized experts are padded most), and vision towers."""


def rank_weights(
    model: Model,
    *,
    tensor_parallel_size: int = 1,
    pipeline_parallel_size: int = 1,
    expert_ranks: int = 1,
    quantization: str | None = None,
    offloaded_bytes: int = 0,
) -> Amount:
    """Weights on the fullest GPU: those of one pipeline stage, experts dealt out to ``expert_ranks`` GPUs.

    Raises InputError for a quantization that vLLM does not know.
    """
    model = _stored(model, quantization)
    counted = weight_bytes(
        model, tensor_parallel_size=tensor_parallel_size, pipeline_parallel_size=pipeline_parallel_size
    )
    total = counted.rank_bytes - offloaded_bytes
    if expert_ranks > tensor_parallel_size:
        experts = model.expert_params * model.expert_bytes_per_param / pipeline_parallel_size
        total -= int(experts / tensor_parallel_size - experts / expert_ranks)
    total = max(0, total)
    if counted.exact and not offloaded_bytes and quantization is None:
        return Amount(total, "exact")
    return Amount(total, "estimate", _spread(model, total))


def _spread(model: Model, total: int) -> int:
    quantized = model.expert_params > 0 and model.expert_bytes_per_param < 2
    share = _SPREAD_OF_QUANTIZED_EXPERTS if quantized else _SPREAD
    sees = (model.architecture or "").endswith("ForConditionalGeneration")
    return int(share * total) + (_VISION_TOWER if sees else 0)


def _stored(model: Model, quantization: str | None) -> Model:
    """The model with the bytes per weight that ``--quantization`` gives it; what is smaller already stays so."""
    if quantization is None or quantization in _KNOWN_BY_CHECKPOINT:
        return model
    if quantization not in _ONLINE_BYTES:
        close = nearest(quantization, [*_ONLINE_BYTES, *_KNOWN_BY_CHECKPOINT])
        hint = f"; nearest is {close!r}" if close else ""
        raise InputError(f"got {quantization!r}, which is no known method{hint}", where="--quantization")
    least = _ONLINE_BYTES[quantization]
    return replace(
        model,
        weight_bytes_per_param=min(model.weight_bytes_per_param, least),
        expert_bytes_per_param=min(model.expert_bytes_per_param, least),
    )
