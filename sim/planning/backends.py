"""Which attention kernels vLLM picks for each layer on a device, and the blocks they want.

Rules: vllm 0.33.0 platforms/cuda.py:85-190 and 377-520 (order of preference), v1/attention/backends/*.py (what each
supports) and platforms/interface.py:702-780 (the block size all of them accept).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final

from sim.engine_config import EngineConfig
from sim.errors import RefusalError
from sim.models import LayerShape, Model
from sim.planning.backend import FP8, FULL_DTYPES, Backend, major_of, resolved_kv_cache_dtype
from sim.planning.latent_backends import latent, on_cpu, on_rocm, sparse
from sim.planning.media import reads_both_ways
from sim.planning.skip_layers import kernel_kv_cache_dtype

_TRITON: Final = Backend("TRITON_ATTN", (16,))
_OWN: Final = {
    "FLASH_ATTN_DIFFKV": Backend("FLASH_ATTN_DIFFKV", (16,)),
    "MINIMAX_M3_SPARSE": Backend("MINIMAX_M3_SPARSE", (128,), multiples=False),
    "MINIMAX_M3_SPARSE_INDEXER": Backend("MINIMAX_M3_SPARSE_INDEXER", (128,), multiples=False),
    "DEEPSEEK_V32_INDEXER": Backend("DEEPSEEK_V32_INDEXER", (64,), multiples=False),
    "DEEPSEEK_SPARSE_SWA": Backend("DEEPSEEK_SPARSE_SWA", (32,)),
    "FLASHMLA_SPARSE_DSV4": Backend("FLASHMLA_SPARSE_DSV4", (256,), multiples=False),
    "DEEPSEEK_V4_INDEXER": Backend("DEEPSEEK_V4_INDEXER", (256,), multiples=False),
    "CompressorBackend": Backend("CompressorBackend", (1,)),
    "GLM5_NEXT_INDEXER": Backend("GLM5_NEXT_INDEXER", (32, 64), multiples=False),
    "QSA": Backend("QSA", (16,)),
    "QSA_STATE": Backend("QSA_STATE", (1,)),
    "KPOOL_TAIL": Backend("KPOOL_TAIL", (1,)),
}
"""Kernels that a layer insists on."""


def layer_backends(model: Model, engine: EngineConfig) -> list[Backend | None]:
    """The kernels of every layer in order, None for states and layers without a cache.

    All None for a model without :class:`sim.models.Kernels`. Raises RefusalError where vLLM finds none.
    """
    if not model.kernels:
        return [None] * len(model.layers)
    known: dict[tuple[object, ...], Backend | None] = {}  # layers are many and of few kinds
    found = []
    of_all = None if engine.kv_cache_dtype_skip_layers else resolved_kv_cache_dtype(model, engine)
    for at, layer in enumerate(model.layers):
        dtype = of_all or kernel_kv_cache_dtype(layer, at, model, engine)
        own = (layer.kind, layer.backend, layer.head_size, layer.block_size, layer.tokens_per_state)
        same = (*own, layer.state is None, dtype)
        if same not in known:
            known[same] = _backend(layer, model, engine, dtype)
        found.append(known[same])
    return found


def kinds_of_kernels(model: Model, engine: EngineConfig) -> list[Backend]:
    """The kernels of the layers that have a cache, each once, in order of first appearance."""
    found = zip(model.layers, layer_backends(model, engine), strict=True)
    return list(
        dict.fromkeys(backend for layer, backend in found if backend and (engine.uses_draft_layers or not layer.draft))
    )


def preferred_block_size(backends: Sequence[Backend], default: int) -> int:
    """The default where all take it, else the smallest block size all of them take.

    >>> preferred_block_size([Backend("FLASHMLA", (64,), multiples=False)], 16)
    64
    >>> preferred_block_size([Backend("FLASH_ATTN", (16,)), Backend("INDEXER", (128,), multiples=False)], 16)
    128
    """
    distinct = list(dict.fromkeys(backends))
    if all(backend.takes(default) for backend in distinct):
        return default
    sizes = sorted({math.lcm(*chosen) for chosen in itertools.product(*(backend.sizes for backend in distinct))})
    return next(size for size in sizes if all(backend.takes(size) for backend in distinct))


def layout_of(backends: Sequence[Backend], engine: EngineConfig) -> str:
    """The order of the cache's dimensions: Blackwell's kernels want heads before tokens, others take any."""
    heads_first = major_of(engine) == 10 and any("FLASHINFER" in backend.name for backend in backends)
    mla = any("MLA" in backend.name for backend in backends)
    return "LBHNC" if heads_first and not mla else engine.kv_cache_layout


def _backend(layer: LayerShape, model: Model, engine: EngineConfig, dtype: str) -> Backend | None:
    if layer.state is not None or layer.kind == "no_cache":
        return None
    if layer.backend in _OWN:
        return _own(layer, model, engine, dtype)
    found = next(_candidates(layer, model, engine, dtype), None)
    if found is None:
        raise RefusalError(
            f"no valid attention backend found for {_device(engine)} with head_size={layer.head_size},"
            f" kv_cache_dtype={dtype}, block_size={engine.block_size}: vLLM refuses to start",
            where="engine.kv_cache_dtype" if dtype != "auto" else "hardware.gpu",
        )
    _check_fp8(found, engine, dtype)
    return found


def _check_fp8(backend: Backend, engine: EngineConfig, dtype: str) -> None:
    """Triton's kernels read fp8 from capability 8.9 on.

    vllm 0.33.0 v1/attention/backends/triton_attn.py:514 and v1/attention/backends/mla/triton_mla.py:203.
    """
    capability = engine.device_capability
    old = capability.split(".")[0] == "8" and capability != "8.9"
    if backend.name.startswith("TRITON") and dtype.startswith("fp8") and old:
        raise RefusalError(
            f"{dtype} is not supported by {backend.name} on cuda {capability}, which has no native fp8: vLLM refuses to"
            " start; use auto",
            where="engine.kv_cache_dtype",
        )


def _device(engine: EngineConfig) -> str:
    major = major_of(engine)
    return f"cuda {engine.device_capability}" if major else engine.device_capability


def _own(layer: LayerShape, model: Model, engine: EngineConfig, dtype: str) -> Backend:
    if any(other.dtype == "fp8_ds_mla" for other in model.layers) and dtype != "auto" and not dtype.startswith("fp8"):
        raise RefusalError(
            f"{dtype} cannot be: the rows of {model.name} are fp8: vLLM refuses to start; use auto or fp8",
            where="engine.kv_cache_dtype",
        )
    if layer.backend == "FLASH_ATTN_DIFFKV" and major_of(engine) < 9:
        found = Backend("TRITON_ATTN_DIFFKV", (16,))
        _check_fp8(found, engine, dtype)
        return found
    backend = _OWN[str(layer.backend)]
    if backend.name == "DEEPSEEK_V32_INDEXER" and engine.device_capability.startswith("gfx"):
        backend = Backend(
            backend.name, (1,)
        )  # AMD's indexer takes any block (v1/attention/backends/mla/indexer.py:285)
    if layer.backend == "GLM5_NEXT_INDEXER":  # pages of 32 or 64 pooled keys, on consumer Blackwell only of 64
        sizes = (64,) if engine.device_capability.startswith("12.") else backend.sizes
        backend = replace(backend, sizes=tuple(size * layer.tokens_per_state for size in sizes))
    raised = any(other.state is not None and not other.draft for other in model.layers)  # to what all kernels take
    given = None if raised or layer.block_size is not None else engine.block_size
    if given is not None and not backend.takes(given):
        raise RefusalError(
            f"no common block size for {given} ({backend.name}: {', '.join(map(str, backend.sizes))}):"
            " vLLM refuses to start",
            where="engine.block_size",
        )
    return backend


def _candidates(layer: LayerShape, model: Model, engine: EngineConfig, dtype: str) -> Iterator[Backend]:
    """The kernels that run this layer, the preferred ones first."""
    if engine.device_capability == "cpu":
        found = on_cpu(layer, dtype)
    elif not major_of(engine):
        found = on_rocm(layer, dtype)
    elif layer.backend == "sparse":
        found = sparse(layer, model, engine, dtype)
    elif layer.kind == "mla":
        found = latent(layer, model, engine, dtype)
    else:
        found = _ordinary(layer, model, engine, dtype)
    for backend in found:
        if engine.block_size is None or backend.takes(engine.block_size):
            yield backend


def _ordinary(layer: LayerShape, model: Model, engine: EngineConfig, dtype: str) -> Iterator[Backend]:
    """Attention over keys and values (platforms/cuda.py:160-190)."""
    major, size = major_of(engine), layer.head_size
    kernels = model.kernels
    assert kernels is not None
    if kernels.uneven_heads and major not in (9, 10):
        if size >= 32:
            yield _TRITON
        return
    both_ways = reads_both_ways(model, engine)
    composite = both_ways and size in (256, 512) and layer.kind != "cross"
    flashinfer = size in (64, 128, 256, 512) and dtype in (*FULL_DTYPES, *FP8, "fp8_e5m2", "nvfp4")
    flashinfer = flashinfer and not (dtype == "nvfp4" and major != 10 and (size == 64 or kernels.sinks))
    flashinfer = flashinfer and not both_ways and not (kernels.sinks and major != 10) and layer.kind != "cross"
    if major == 10:
        if composite and dtype in (*FULL_DTYPES, *FP8, "fp8_e5m2"):
            yield Backend("TRITON_FLASHINFER", (64,), multiples=False)
        if flashinfer:
            yield Backend("FLASHINFER", _flashinfer_sizes(model, engine), multiples=False)
    elif major == 9 and composite and dtype in (*FULL_DTYPES, *FP8):
        yield _flash_attn("TRITON_FLASH_ATTN", model, engine, size, dtype)
    if _flash_attn_runs(size, dtype, model, engine):
        yield _flash_attn("FLASH_ATTN", model, engine, size, dtype)
    if flashinfer and major != 10 and major <= 12:
        yield Backend("FLASHINFER", (16, 32, 64), multiples=False)
    if size >= 32 and dtype not in ("fp8_ds_mla", "nvfp4"):
        yield _TRITON
    if dtype in FULL_DTYPES and not kernels.sinks and layer.kind != "cross":
        yield Backend("FLEX_ATTENTION", (16,))


def _flash_attn(name: str, model: Model, engine: EngineConfig, head_size: int, dtype: str) -> Backend:
    """Heads of 512 and an fp8 cache need pages of 64 on Hopper, and blocks all layers can share (flash_attn.py:300).

    Those are asked of the model and of all its layers; a layer with narrow heads, or unquantized, takes others itself.
    """
    assert model.kernels is not None
    wide = model.kernels.head_size == 512 and major_of(engine) == 9 and resolved_kv_cache_dtype(model, engine) in FP8
    if not wide:
        return Backend(name, (16,))
    return Backend(name, (64,), multiples=head_size != 512 or dtype not in FP8, unit=16)


def _flash_attn_runs(size: int, dtype: str, model: Model, engine: EngineConfig) -> bool:
    """Whether FlashAttention runs: version 3 on Hopper, 4 for its wide heads and on Blackwell, 2 elsewhere."""
    major, kernels = major_of(engine), model.kernels
    assert kernels is not None
    newest = major in (9, 10)
    if size % 8 or size > (512 if newest else 256) or dtype not in (*FULL_DTYPES, *FP8):
        return False
    if dtype in FP8 and not (major == 9 or (major == 10 and (size <= 128))):
        return False
    if kernels.sinks and not newest:
        return False
    if not reads_both_ways(model, engine):
        return True
    return (size > 256 and major == 9 and dtype not in FP8) or (size <= 128 and major == 10)  # only version 4 does


def _flashinfer_sizes(model: Model, engine: EngineConfig) -> tuple[int, ...]:
    """Blackwell's kernels take large pages where several query heads share a KV head (flashinfer.py:585)."""
    kernels = model.kernels
    assert kernels is not None
    ranks = engine.tensor_parallel_size
    kv_heads = max(1, kernels.num_kv_heads // ranks)
    grouped = kernels.num_heads // ranks // kv_heads > 1
    return (16, 32, 64, 128, 256, 512, 1024) if grouped else (16, 32, 64)
