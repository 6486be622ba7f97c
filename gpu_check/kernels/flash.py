"""FlashAttention and FlashInfer, where they are installed, behind the same call as the other kernels.

They need a GPU; nothing here can be tried without one, which is why each is to be compared with
:mod:`gpu_check.kernels.gather` on its own device before it is used.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from gpu_check.kernels.batch import Batch, first_key
from gpu_check.kernels.shape import AttentionShape, Run

WORKSPACE_BYTES = 256 << 20
"""Scratch that FlashInfer wants; the size vLLM gives it is of this order."""


def unsupported(kernel: str, shape: AttentionShape) -> str | None:
    """Why the kernel cannot serve this shape, or is not here; None when nothing speaks against it."""
    import torch

    package = _PACKAGES[kernel]
    if find_spec(package) is None:
        return f"{package} is not installed"
    if not torch.cuda.is_available():
        return "needs a GPU"
    if shape.dtype not in (torch.float16, torch.bfloat16):
        return "takes 16-bit floats only"
    if shape.chunk:
        return "knows no chunks"
    if shape.head_size != shape.head_size_v:
        return "takes values as wide as keys only"
    return None


def prepare(kernel: str, shape: AttentionShape, batch: Batch) -> Run:
    """Attention of ``batch`` by one of these kernels."""
    return _PREPARE[kernel](shape, batch)


def _vllm(shape: AttentionShape, batch: Batch) -> Run:
    """The FlashAttention that vLLM brings and runs (vllm 0.33.0 vllm_flash_attn/flash_attn_interface.py:176)."""
    attention = import_module("vllm.vllm_flash_attn").flash_attn_varlen_func
    version = import_module("vllm.v1.attention.backends.fa_utils").get_flash_attn_version()
    left = (shape.window or 0) - 1

    def run(query: Any, k_cache: Any, v_cache: Any, out: Any) -> None:
        attention(
            q=query,
            k=k_cache,
            v=v_cache,
            out=out,
            cu_seqlens_q=batch.query_start,
            max_seqlen_q=max(batch.query_lens),
            seqused_k=batch.seq_lens_there,
            max_seqlen_k=max(batch.seq_lens),
            softmax_scale=shape.scale,
            causal=True,
            window_size=[left, 0] if shape.window else [-1, -1],
            block_table=batch.block_table,
            fa_version=version,
        )

    return run


def _flash_attention_3(shape: AttentionShape, batch: Batch) -> Run:
    """FlashAttention 3, which takes pages of any size, as its own interface for Hopper says."""
    attention = import_module("flash_attn_interface").flash_attn_with_kvcache

    def run(query: Any, k_cache: Any, v_cache: Any, out: Any) -> None:
        found = attention(
            query,
            k_cache,
            v_cache,
            cache_seqlens=batch.seq_lens_there,
            page_table=batch.block_table,
            cu_seqlens_q=batch.query_start,
            max_seqlen_q=max(batch.query_lens),
            softmax_scale=shape.scale,
            causal=True,
            window_size=(shape.window - 1, 0) if shape.window else (-1, -1),
        )
        out.copy_(found[0] if isinstance(found, tuple) else found)

    return run


def _flashinfer(shape: AttentionShape, batch: Batch) -> Run:
    """FlashInfer's wrapper for paged prefill, which decodes as well; it is given only the blocks that are seen.

    Its plan is made here, as vLLM makes it once per step (vllm 0.33.0 v1/attention/backends/flashinfer.py:1870).
    """
    import torch

    blocks, indptr, last = [], [0], []
    for request, (new, end) in enumerate(zip(batch.query_lens, batch.seq_lens, strict=True)):
        low = first_key(end - new, shape.window, 0) // shape.block_size
        high = -(-end // shape.block_size)
        blocks.append(batch.block_table[request, low:high])
        indptr.append(indptr[-1] + high - low)
        last.append(end - (high - 1) * shape.block_size)
    device = batch.block_table.device
    scratch = torch.zeros(WORKSPACE_BYTES, dtype=torch.uint8, device=device)
    wrapper = import_module("flashinfer").BatchPrefillWithPagedKVCacheWrapper(scratch, "NHD")
    wrapper.plan(
        qo_indptr=batch.query_start,
        paged_kv_indptr=torch.tensor(indptr, dtype=torch.int32, device=device),
        paged_kv_indices=torch.cat(blocks),
        paged_kv_last_page_len=torch.tensor(last, dtype=torch.int32, device=device),
        num_qo_heads=shape.num_heads,
        num_kv_heads=shape.num_kv_heads,
        head_dim_qk=shape.head_size,
        page_size=shape.block_size,
        causal=True,
        sm_scale=shape.scale,
        window_left=shape.window - 1 if shape.window else -1,
        q_data_type=shape.dtype,
        kv_data_type=shape.dtype,
    )

    def run(query: Any, k_cache: Any, v_cache: Any, out: Any) -> None:
        wrapper.run(query, (k_cache, v_cache), out=out)

    return run


_PACKAGES = {"flash-attention-vllm": "vllm", "flash-attention-3": "flash_attn_interface", "flashinfer": "flashinfer"}
_PREPARE: dict[str, Callable[[AttentionShape, Batch], Run]] = {
    "flash-attention-vllm": _vllm,
    "flash-attention-3": _flash_attention_3,
    "flashinfer": _flashinfer,
}
