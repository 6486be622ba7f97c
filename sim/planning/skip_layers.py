"""Layers that ``--kv-cache-dtype-skip-layers`` leaves in the model's own dtype, and the page they share with others.

Rules: vllm 0.33.0 model_executor/layers/attention/attention.py:300-322 and :584-640, mla_attention.py:494, and
platforms/interface.py:826-938.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from sim.engine_config import EngineConfig
from sim.errors import InputError, RefusalError
from sim.models import LayerShape, Model
from sim.planning.backend import Backend, resolved_kv_cache_dtype
from sim.specs import state_content_bytes
from sim.units import cdiv, dtype_bytes

WINDOWS: Final = "sliding_window"
"""The word that stands for all layers with a window; any other is a layer's number."""

_TWO_NUMBERS: Final = ("LongcatFlashForCausalLM",)
"""Architectures whose layers vLLM cannot number (vllm 0.33.0 model_executor/models/utils.py:1084)."""

_COMPOSITE: Final = ("TRITON_FLASH_ATTN", "TRITON_FLASHINFER")
"""Two kinds of kernels in one, which have to agree on what they store."""


def check_skip_layers(model: Model, engine: EngineConfig) -> None:
    """Raise RefusalError for a model whose layers cannot be numbered, InputError where a number may mean a draft's."""
    named = engine.kv_cache_dtype_skip_layers
    if named and model.architecture in _TWO_NUMBERS:
        raise RefusalError(
            f"layers of {model.name} have two numbers in their names: vLLM fails to start; leave it out",
            where="engine.kv_cache_dtype_skip_layers",
        )
    if engine.uses_draft_layers and any(name.isdigit() for name in named):
        raise InputError(
            "numbers of layers are not modelled beside a draft with layers of its own, whose class decides what they"
            " mean",
            where="engine.kv_cache_dtype_skip_layers",
        )


def is_skipped(layer: LayerShape, position: int, engine: EngineConfig) -> bool:
    """Whether the layer is left unquantized, ``position`` being its place among the layers.

    >>> budgets = {"max_model_len": 64, "max_num_batched_tokens": 64, "max_num_seqs": 1}
    >>> engine = EngineConfig(**budgets, kv_cache_dtype_skip_layers=("sliding_window", "2"))
    >>> window, full = LayerShape("sliding_window", 8, 1, 64, 64), LayerShape("full", None, 1, 64, 64)
    >>> [is_skipped(layer, 0, engine) for layer in (window, full)], is_skipped(full, 2, engine)
    ([True, False], True)
    """
    named = engine.kv_cache_dtype_skip_layers
    if not named or not layer.skippable or layer.cache_role == "indexer":
        return False
    if layer.kind == "sliding_window" and WINDOWS in named:
        return True
    depth = position if layer.depth is None else layer.depth
    return str(depth if layer.number is None else layer.number) in named


def layer_kv_cache_dtype(layer: LayerShape, position: int, model: Model, engine: EngineConfig) -> str:
    """``--kv-cache-dtype`` of one layer: ``auto`` where it is skipped."""
    return "auto" if is_skipped(layer, position, engine) else resolved_kv_cache_dtype(model, engine)


def kernel_kv_cache_dtype(layer: LayerShape, position: int, model: Model, engine: EngineConfig) -> str:
    """The dtype that decides about the layer's kernels: those of chunked and cross attention do not hear of skipping.

    vllm 0.33.0 model_executor/layers/attention/chunked_local_attention.py:97, cross_attention.py:205.
    """
    if layer.kind in ("chunked_local", "cross", "sink"):
        return resolved_kv_cache_dtype(model, engine)
    return layer_kv_cache_dtype(layer, position, model, engine)


def packed_bytes(backend: Backend | None, head_size: int, head_size_v: int, dtype: str) -> int:
    """Bytes of one token of one head as ``backend`` packs them: only some know formats with scales inside.

    Raises RefusalError where two kinds of kernels in one would pack them differently (vllm 0.33.0
    v1/attention/backends/composite.py:495).
    """
    packer = "FLASHINFER" if dtype == "nvfp4" else "TRITON"
    packed = dtype == "nvfp4" or dtype.endswith("_per_token_head")
    if packed and backend is not None and backend.name in _COMPOSITE:
        raise RefusalError(
            f"{backend.name}, the kernels of the first layer, cannot store {dtype}: vLLM refuses to start; do not skip"
            " the first layer",
            where="engine.kv_cache_dtype_skip_layers",
        )
    if packed and backend is not None and (packer not in backend.name or "DIFFKV" in backend.name):
        return (head_size + head_size_v) * dtype_bytes(dtype)
    return state_content_bytes(head_size, head_size_v, dtype)


def shared_page(
    model: Model, engine: EngineConfig, backends: Sequence[Backend], block_size: int, state_page: int | None
) -> tuple[int, int | None]:
    """``(block_size, bytes)``: blocks raised until a quantized page holds an unquantized one, and that page.

    The page is None where nothing is skipped, or nothing is quantized. One block of each, in tokens of the whole::

        quantized   |0 1 2 3 4 5 6 7|     8 tokens fill the page
        skipped     |0   1   2   3  |     4 tokens, twice as large

    >>> from sim.models import load_model
    >>> flags = {"max_model_len": 8192, "max_num_batched_tokens": 8192, "max_num_seqs": 8, "kv_cache_dtype": "fp8"}
    >>> engine = EngineConfig(**flags, kv_cache_dtype_skip_layers=("sliding_window",))
    >>> shared_page(load_model("gemma-2-27b"), engine, [Backend("FLASH_ATTN", (16,))], 16, None)
    (32, 131072)
    """
    kernels = model.kernels
    if not engine.kv_cache_dtype_skip_layers or kernels is None or not backends:
        return block_size, None
    first, size = backends[0], kernels.head_size
    heads = max(1, kernels.num_kv_heads // engine.tensor_parallel_size)
    dtype = resolved_kv_cache_dtype(model, engine)
    quantized = heads * packed_bytes(first, size, size, model.dtype if dtype == "auto" else dtype)
    own = heads * packed_bytes(first, size, size, model.dtype)
    if own < quantized:
        raise RefusalError(
            f"{dtype} takes more than the model's own dtype: vLLM refuses to start; leave the skipped layers out",
            where="engine.kv_cache_dtype_skip_layers",
        )
    if own == quantized:
        return block_size, None
    smallest = min(first.sizes)
    unit = max(smallest, block_size)
    needed = max(own * smallest, state_page or 0)
    block_size = max(block_size, unit * cdiv(needed, unit * quantized))
    return block_size, block_size * quantized
