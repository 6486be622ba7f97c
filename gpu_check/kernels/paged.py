"""Windowed attention over a paged KV cache, and which of the kernels at hand computes it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gpu_check.kernels import flash, gather, triton_attention
from gpu_check.kernels.batch import Batch, make_batch
from gpu_check.kernels.shape import AttentionShape, Run, shape_of

KERNELS = ("flash-attention-vllm", "flash-attention-3", "flashinfer", "triton", "gather")
"""From the one that vLLM runs to the one that runs everywhere."""


def paged_attention(
    query: Any,
    k_cache: Any,
    v_cache: Any,
    block_table: Any,
    seq_lens: Sequence[int],
    query_lens: Sequence[int],
    *,
    scale: float,
    window: int = 0,
    chunk: int = 0,
    kernel: str = "gather",
) -> Any:
    """Attention of each request's new tokens over what its block table holds: [tokens, heads, size of a value].

    ``query`` [tokens, heads, size] has the new tokens of all requests behind each other, ``query_lens`` of each;
    ``k_cache`` and ``v_cache`` [blocks, block_size, kv_heads, size] may have any strides but the last, which is 1, and
    a value may be a part of the key's own vector (MLA: ``v_cache = k_cache[..., :512]``). ``block_table`` int32
    [requests, blocks] lies on their device (:func:`gpu_check.kernels.batch.padded_table` makes it); ``seq_lens`` counts
    the tokens that the cache then holds, the new ones included, which must have been written before. A query sees
    itself and ``window - 1`` tokens before it (0: all), or what of its ``chunk`` precedes it (0: none). Blocks that no
    query of the call sees are not read: their entries may be 0, their contents NaN.

    ``kernel`` is one of :data:`KERNELS`; on the CPU ``triton`` is interpreted. Raises ValueError for tensors that do
    not belong together, RuntimeError where the kernel cannot run here.
    """
    shape = shape_of(query, k_cache, v_cache, scale, window, chunk)
    run = prepare(kernel, shape, make_batch(block_table, seq_lens, query_lens))
    out = query.new_empty((query.shape[0], shape.num_heads, shape.head_size_v))
    run(query, k_cache, v_cache, out)
    return out


def prepare(kernel: str, shape: AttentionShape, batch: Batch) -> Run:
    """Attention of ``batch`` by the kernel of that name, ready to be launched; RuntimeError where it cannot run."""
    why = unsupported(kernel, shape)
    if why:
        raise RuntimeError(f"{kernel}: {why}")
    if kernel == "gather":
        return gather.prepare(shape, batch)
    if kernel == "triton":
        return triton_attention.prepare(shape, batch)
    return flash.prepare(kernel, shape, batch)


def unsupported(kernel: str, shape: AttentionShape) -> str | None:
    """Why the kernel of that name cannot serve this shape, as far as is known without running it; None when it can."""
    if kernel == "gather":
        return None
    return triton_attention.unsupported(shape) if kernel == "triton" else flash.unsupported(kernel, shape)
