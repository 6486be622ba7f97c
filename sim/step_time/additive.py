"""How long a step takes by its work: a roofline-like sum with published priors, as costs in ns for the core.

    t = a*C + b*M + t0*layers + tr*requests + g*X        and c0 once, on a request's first token

C, M and X are the seconds the batch would need at the data sheet's peak: floating-point operations, bytes from memory
(weights, touched experts, cached tokens), ring all-reduce bytes over the link. The priors are medians of fits to
gpt-oss-120b and Llama-3.3-70B on H100, H200 and B200 (NVIDIA's and SemiAnalysis's published serving points); for a
model nothing was measured on, they were off by 10-30 % in TPOT, 11-45 % in throughput and 23-105 % in TTFT. Drafts are
priced as scheduled tokens; what the draft model itself takes is left out, and the class of the estimate says so.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from sim.core.price import ADDITIVE, Price
from sim.engine_config import EngineConfig
from sim.hardware import Gpu
from sim.models import LayerShape, Model
from sim.specs import state_content_bytes
from sim.step_time.constant import NO_GRID
from sim.units import dtype_bytes

DENSE_PRIORS = {"a": 2.0, "b": 1.05, "t0_us_per_layer": 75.0, "tr_us": 30.0, "g": 2.0, "c0_ms": 17.0}
FOUR_BIT_A = 4.0
"""Compute coefficient of 4-bit weights that are widened before the product (a quarter of the peak is reached)."""


def priors(model: Model) -> dict[str, float]:
    """The coefficients for a model nothing was measured on."""
    return DENSE_PRIORS | ({"a": FOUR_BIT_A} if model.num_experts and model.expert_bytes_per_param < 1 else {})


def additive_price(coefficients: Mapping[str, float], model: Model, engine: EngineConfig, gpu: Gpu) -> Price:
    """Costs in ns: each coefficient over the peak of all tensor-parallel ranks.

    Pipeline stages hold a part of the layers each; a batch passes through all of them, so its duration is that of the
    whole model.
    """
    ranks = engine.tensor_parallel_size
    flops = _peak_flops(model, gpu) * ranks
    bandwidth = gpu.mem_bw_gbs * 1e9 * ranks
    compute_ns = coefficients["a"] * 1e9 / flops
    byte_ns = coefficients["b"] * 1e9 / bandwidth
    weights = model.params_dense * model.weight_bytes_per_param
    experts = model.expert_params * model.expert_bytes_per_param
    windows, pairs, reads = _attention_costs(model, engine)
    return Price(
        kind=ADDITIVE,
        fixed_ns=coefficients["t0_us_per_layer"] * 1e3 * model.num_hidden_layers + byte_ns * weights,
        token_ns=compute_ns * 2.0 * model.params_active + coefficients["g"] * _all_reduce_ns(model, engine, gpu),
        request_ns=coefficients["tr_us"] * 1e3 + byte_ns * ranks * _state_bytes(model, engine),
        expert_ns=byte_ns * experts,
        experts=float(model.num_experts),
        experts_per_token=float(model.experts_per_token),
        window=np.array(windows, np.int64),
        pair_ns=compute_ns * np.array(pairs),
        read_ns=byte_ns * ranks * np.array(reads),
        grid=NO_GRID,
    )


def _peak_flops(model: Model, gpu: Gpu) -> float:
    fp8 = gpu.fp8_tflops is not None and model.weight_bytes_per_param <= 1
    return (gpu.fp8_tflops if fp8 and gpu.fp8_tflops is not None else gpu.bf16_tflops) * 1e12


def _all_reduce_ns(model: Model, engine: EngineConfig, gpu: Gpu) -> float:
    """Nanoseconds on the link per token: two ring all-reduces of a hidden state per layer."""
    ranks = engine.tensor_parallel_size
    sent = 2 * model.num_hidden_layers * model.hidden_size * dtype_bytes(model.dtype) * 2 * (ranks - 1) / ranks
    return sent / gpu.link_gbs


_ATTENTION = ("full", "sink", "rswa", "mla", "sliding_window", "sliding_window_mla", "chunked_local")


def _attention_costs(model: Model, engine: EngineConfig) -> tuple[list[int], list[float], list[float]]:
    """Per attention span: tokens (0 = full), operations per query-key pair, bytes one rank reads per cached token."""
    dtype = model.dtype if engine.kv_cache_dtype == "auto" else engine.kv_cache_dtype
    spans: dict[int, list[LayerShape]] = {}
    for layer in model.layers:
        if layer.kind in _ATTENTION and not layer.draft:
            spans.setdefault(layer.window or layer.chunk_size or 0, []).append(layer)
    pairs = [
        float(sum(2 * model.num_attention_heads * (layer.head_size + _value_size(layer)) for layer in layers))
        for layers in spans.values()
    ]
    reads = [
        sum(
            max(1, layer.num_kv_heads // engine.tensor_parallel_size)
            * (layer.state_bytes or state_content_bytes(layer.head_size, layer.head_size_v, layer.dtype or dtype))
            for layer in layers
        )
        for layers in spans.values()
    ]
    return list(spans), pairs, [float(read) for read in reads]


def _value_size(layer: LayerShape) -> int:
    """Elements of a value vector; a latent layer (MLA) multiplies with the latent itself."""
    return layer.head_size_v or layer.head_size


def _state_bytes(model: Model, engine: EngineConfig) -> float:
    """Bytes of recurrent state one rank reads and writes per request and step."""
    total = 0
    for layer in model.layers:
        if layer.state is not None and not layer.draft:
            for shape, dtype in zip(layer.state.shapes, layer.state.dtypes, strict=True):
                total += 2 * math.prod(shape) * dtype_bytes(dtype or model.dtype)
    return total / engine.tensor_parallel_size
