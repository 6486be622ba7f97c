"""How long a step takes by its work: a sum of terms with coefficients, as costs in ns for the core.

    t = a*C + a_attn*A + b*W + b_kv*K + t0*layers + tr*requests + g*X      and c0 once, on a request's first token

In seconds at the data sheet's peak: C matrix products, A attention's products, W weights and states read, K cached
tokens read, X over the link: ring all-reduces, and tokens on their way to experts and back. A token is multiplied with
all active weights but the output head, which sees one token of each request. Of the experts, ``n`` tokens touch
1 - (1 - k/E)^n. Attention multiplies in 16 bits whatever the weights are; a window reads no less than its kernel's
tile.

Ranks of tensor and expert parallelism share all of this evenly (:mod:`sim.step_time.experts`), those of decode context
parallelism the cached tokens; pipeline stages hold a part of the layers each, and a batch passes through all of them.
Drafts are priced as scheduled tokens; what the draft model itself takes is left out, and the class of the estimate says
so.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import numpy as np

from sim.core.price import ADDITIVE, Price
from sim.engine_config import EngineConfig
from sim.hardware import Gpu
from sim.models import LayerShape, Model
from sim.planning import layer_specs
from sim.planning.backend import resolved_kv_cache_dtype
from sim.specs import MambaSpec, state_content_bytes
from sim.step_time.constant import NO_GRID
from sim.step_time.experts import exchanged_bytes, sharing_engines, touched_per_token
from sim.units import dtype_bytes

COEFFICIENTS: Final = ("a", "a_attn", "b", "b_kv", "t0_us_per_layer", "tr_us", "g", "c0_ms")
"""In the order of the sum; all but the last are linear in the time of a step."""

_PRIORS: Final = {
    "a": 2.0,
    "a_attn": 1.5,
    "b": 1.05,
    "b_kv": 1.25,
    "t0_us_per_layer": 75.0,
    "tr_us": 20.0,
    "g": 2.5,
    "c0_ms": 17.0,
}
_FP8_A, _FP4_A, _WIDENED_A = 1.9, 2.2, 4.3
"""Of weights in fp8 at fp8's peak, and of 4-bit experts at that of 16 bits; on GPUs that cannot multiply those, they
are widened first, and a quarter of the peak is reached. 16-bit products reach 70-80 % of theirs."""
_FP8_CACHE_ON_HOPPER: Final = 1.9
"""Reading a cache in fp8 takes as long there as one in 16 bits nearly."""
_TILE: Final = {"8": 1, "9": 576, "10": 256, "11": 256, "12": 1150}
"""Tokens a decode kernel reads at least of a window, by compute capability: sliding windows of 128 take 4-5 times their
bytes on Hopper, twice on B200, 9 times on an RTX PRO 6000; windows of 1,024 what they hold (aiconfigurator-core
0.12.0, measured decode kernels, Apache-2.0). Nothing was measured on Ampere."""
_ADA_TILE: Final = 640


def priors(model: Model, engine: EngineConfig, gpu: Gpu) -> dict[str, float]:
    """The coefficients for a model that nothing was measured on.

    Those of dense models come from fits to Llama-3.3-70B in fp8, those of 4-bit experts from gpt-oss-120b; t0 fell from
    release to release (45 to 90 us a layer).
    """
    found = dict(_PRIORS)
    hopper = gpu.capability.startswith("9.")
    if model.num_experts and model.expert_bytes_per_param < 1:
        found["a"] = _FP4_A if gpu.capability.startswith(("10.", "12.")) else _WIDENED_A
    elif _multiplies_in_fp8(model, gpu):
        found["a"] = _FP8_A
    if hopper and resolved_kv_cache_dtype(model, engine).startswith("fp8"):
        found["b_kv"] = _FP8_CACHE_ON_HOPPER
    return found


def additive_price(coefficients: Mapping[str, float], model: Model, engine: EngineConfig, gpu: Gpu) -> Price:
    """Costs in ns: each coefficient over the peak of all ranks that share the work."""
    ranks = engine.tensor_parallel_size
    compute_ns = coefficients["a"] * 1e9 / (_peak_flops(model, gpu) * ranks)
    attention_ns = coefficients["a_attn"] * 1e9 / (gpu.bf16_tflops * 1e12 * ranks)
    weight_ns = coefficients["b"] * 1e9 / (gpu.mem_bw_gbs * 1e9 * ranks)
    read_ns = coefficients["b_kv"] * 1e9 / (gpu.mem_bw_gbs * 1e9 * engine.decode_context_parallel_size)
    head = model.vocab_size * model.hidden_size
    windows, pairs, reads = _attention_costs(model, engine, gpu)
    engines = sharing_engines(model, engine)
    return Price(
        kind=ADDITIVE,
        fixed_ns=coefficients["t0_us_per_layer"] * 1e3 * model.num_hidden_layers
        + weight_ns * model.params_dense * model.weight_bytes_per_param,
        token_ns=compute_ns * 2.0 * (model.params_active - head)
        + coefficients["g"] * (_all_reduce_bytes(model, engine) + exchanged_bytes(model, engine)) / gpu.link_gbs,
        request_ns=compute_ns * 2.0 * head
        + coefficients["tr_us"] * 1e3
        + weight_ns * ranks * _state_bytes(model, engine),
        expert_ns=weight_ns / engines * model.expert_params * model.expert_bytes_per_param,
        experts=float(model.num_experts),
        experts_per_token=touched_per_token(model, engines),
        window=np.array(windows, np.int64),
        pair_ns=attention_ns * np.array(pairs),
        read_ns=read_ns * np.array(reads),
        grid=NO_GRID,
    )


def _multiplies_in_fp8(model: Model, gpu: Gpu) -> bool:
    return gpu.fp8_tflops is not None and model.weight_bytes_per_param <= 1


def _peak_flops(model: Model, gpu: Gpu) -> float:
    tflops = (gpu.fp8_tflops if _multiplies_in_fp8(model, gpu) else None) or gpu.bf16_tflops
    return tflops * 1e12


def _all_reduce_bytes(model: Model, engine: EngineConfig) -> float:
    """Bytes on the link per token: two ring all-reduces of a hidden state per layer."""
    ranks = engine.tensor_parallel_size
    return 2 * model.num_hidden_layers * model.hidden_size * dtype_bytes(model.dtype) * 2 * (ranks - 1) / ranks


_ATTENTION = ("full", "sink", "rswa", "mla", "sliding_window", "sliding_window_mla", "chunked_local")


def _attention_costs(model: Model, engine: EngineConfig, gpu: Gpu) -> tuple[list[int], list[float], list[float]]:
    """Per attention span: tokens (0 = full), operations per query-key pair, bytes one rank reads per cached token."""
    resolved = resolved_kv_cache_dtype(model, engine)
    dtype = model.dtype if resolved == "auto" else resolved
    spans: dict[int, list[LayerShape]] = {}
    for layer in model.layers:
        if layer.kind in _ATTENTION and not layer.draft:
            spans.setdefault(_span(layer), []).append(layer)
    pairs = [
        sum(
            2 * model.num_attention_heads * (layer.head_size + _value_size(layer)) / layer.tokens_per_state
            for layer in layers
        )
        for layers in spans.values()
    ]
    reads = [
        _widening(span, gpu)
        * sum(
            max(1, layer.num_kv_heads // engine.tensor_parallel_size)
            * (layer.state_bytes or state_content_bytes(layer.head_size, layer.head_size_v, layer.dtype or dtype))
            / layer.tokens_per_state
            for layer in layers
        )
        for span, layers in spans.items()
    ]
    return list(spans), pairs, reads


def _span(layer: LayerShape) -> int:
    """Tokens a query sees at most: a window, a chunk, or those an indexer chose; 0 where it sees all."""
    return layer.window or layer.chunk_size or layer.topk_buffer_width or 0


def _widening(window: int, gpu: Gpu) -> float:
    """How many times its bytes a window takes: a kernel reads whole tiles.

    >>> from sim.hardware import find_gpu
    >>> [_widening(window, find_gpu("H100")) for window in (0, 128, 1024)]
    [1.0, 4.5, 1.0]
    """
    tile = _ADA_TILE if gpu.capability == "8.9" else _TILE.get(gpu.capability.split(".")[0], 1)
    return max(1.0, tile / window) if window else 1.0


def _value_size(layer: LayerShape) -> int:
    """Elements of a value vector; a latent layer (MLA) multiplies with the latent itself."""
    return layer.head_size_v or layer.head_size


def _state_bytes(model: Model, engine: EngineConfig) -> float:
    """Bytes of recurrent state one rank reads and writes per request and step."""
    if all(layer.state is None for layer in model.layers):
        return 0.0
    specs = layer_specs(model, engine).values()
    return 2.0 * sum(spec.unpadded_page_size_bytes for spec in specs if isinstance(spec, MambaSpec))
