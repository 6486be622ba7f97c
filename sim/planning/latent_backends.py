"""Kernels of latent attention, over all tokens or over chosen ones, and the few kinds of other devices.

Rules: vllm 0.33.0 platforms/cuda.py:95-155 and v1/attention/backends/mla/*.py.
"""

from __future__ import annotations

from collections.abc import Iterator

from sim.engine_config import EngineConfig
from sim.errors import RefusalError
from sim.models import LayerShape, Model
from sim.planning.backend import FP8, FULL_DTYPES, Backend, major_of


def latent(layer: LayerShape, model: Model, engine: EngineConfig, dtype: str) -> Iterator[Backend]:
    """Latent attention (platforms/cuda.py:95-155)."""
    major = major_of(engine)
    if dtype not in (*FULL_DTYPES, *FP8):
        return
    wide = layer.head_size in (320, 512, 576)
    kernels = model.kernels
    assert kernels is not None
    if major == 9 and wide:
        if dtype in FULL_DTYPES:
            yield Backend("FLASH_ATTN_MLA", (16,))
        yield Backend("FLASHMLA", (64,), multiples=False)
    if major == 10 and wide:
        if kernels.qk_nope_head_dim in (64, 128, 192):
            yield Backend("FLASHINFER_MLA", (32, 64), multiples=False)
        yield Backend("CUTLASS_MLA", (128,), multiples=False)
    yield Backend("TRITON_MLA", (16,))


def sparse(layer: LayerShape, model: Model, engine: EngineConfig, dtype: str) -> Iterator[Backend]:
    """Latent attention over chosen tokens."""
    major = major_of(engine)
    if dtype not in (*FULL_DTYPES, *FP8, "fp8_ds_mla"):
        return
    kernels = model.kernels
    assert kernels is not None
    rotary = layer.head_size != 512  # FlashInfer has one kernel for keys without a rotary part
    trtllm = major == 10 and kernels.qk_nope_head_dim in ((128, 192) if rotary else (256,)) and dtype != "fp8_ds_mla"
    few_heads = kernels.num_heads // engine.tensor_parallel_size <= 16
    if major == 9 and dtype in FULL_DTYPES and engine.decode_context_parallel_size == 1:
        yield Backend("FLASH_ATTN_MLA_SPARSE", (64,), stride_rows=1)
    if trtllm and (dtype in FP8 or few_heads or not rotary):
        yield Backend("FLASHINFER_MLA_SPARSE", (32,), stride_rows=32)
    flashmla = model.dtype == "bfloat16" and dtype in ("auto", "bfloat16", "fp8", "fp8_ds_mla")
    if major in (9, 10) and layer.head_size == 576 and flashmla:
        by_rows = dtype in FULL_DTYPES or major == 10  # quantized, Hopper's kernel reads pages of 64 tokens
        yield Backend(
            "FLASHMLA_SPARSE", (64,), stride_rows=1 if by_rows else None, stride_tokens=None if by_rows else 64
        )
    if trtllm:  # what is left of many heads in float16
        yield Backend("FLASHINFER_MLA_SPARSE", (32,), stride_rows=32)
    if major == 12 and dtype in ("auto", *FP8, "fp8_ds_mla"):
        yield Backend("FLASHINFER_MLA_SPARSE_SM120", (64,), stride_rows=64)


def on_cpu(layer: LayerShape, dtype: str) -> Iterator[Backend]:
    """A CPU with AMX runs ordinary and latent attention in blocks of 32, and no sparse one.

    vllm 0.33.0 platforms/cpu.py:146-195, v1/attention/backends/mla/amx_mla.py:126-140.
    """
    if layer.backend == "sparse":
        raise RefusalError("sparse attention is not supported on CPU: vLLM refuses to start", where="hardware.gpu")
    if layer.kind == "mla":
        if dtype in FULL_DTYPES and layer.head_size == 576:
            yield Backend("AMX_MLA", (32,))
    elif dtype in (*FULL_DTYPES, *FP8, "fp8_e5m2"):
        yield Backend("CPU_ATTN", (32,))


def on_rocm(layer: LayerShape, dtype: str) -> Iterator[Backend]:
    """AMD's kernels take blocks of 16; those of sparse attention any, whole rows apart.

    vllm 0.33.0 platforms/rocm.py:531-570, v1/attention/backends/mla/rocm_aiter_mla_sparse.py:350-366.
    """
    if layer.backend != "sparse":
        yield Backend("TRITON_MLA", (16,)) if layer.kind == "mla" else Backend("ROCM_ATTN", (16,))
    elif dtype in (*FULL_DTYPES, *FP8):
        yield Backend("ROCM_AITER_MLA_SPARSE", (1,), stride_rows=1)
