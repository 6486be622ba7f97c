"""Paged attention without a kernel of its own: the blocks of each request gathered, then torch's attention on them.

It runs on every device torch runs on, and is what the other kernels are checked against. Keys and values are copied
once, so that it moves three times the bytes that a paged kernel reads.
"""

from __future__ import annotations

from typing import Any

from gpu_check.kernels.batch import Batch, first_key
from gpu_check.kernels.shape import AttentionShape, Run


def prepare(shape: AttentionShape, batch: Batch) -> Run:
    """Attention of ``batch``, request by request; masks of chunks are made once."""
    pieces = [_Piece(shape, batch, request) for request in range(len(batch.query_lens))]

    def run(query: Any, k_cache: Any, v_cache: Any, out: Any) -> None:
        for piece in pieces:
            piece.run(query, k_cache, v_cache, out)

    return run


class _Piece:
    """One request: its new tokens, the blocks they see, and which key is seen by which query (None: all by the one)."""

    def __init__(self, shape: AttentionShape, batch: Batch, request: int) -> None:
        end, new = batch.seq_lens[request], batch.query_lens[request]
        start = sum(batch.query_lens[:request])
        self.shape = shape
        self.tokens = slice(start, start + new)
        first = first_key(end - new, shape.window, shape.chunk)
        low = first // shape.block_size
        self.blocks = batch.block_table[request, low : -(-end // shape.block_size)].long()
        self.keys = slice(first - low * shape.block_size, end - low * shape.block_size)
        self.mask = _mask(shape, end - new, end, first, batch.block_table.device) if new > 1 else None

    def run(self, query: Any, k_cache: Any, v_cache: Any, out: Any) -> None:
        """Attention of the request, the query heads of one KV head as rows of one matrix."""
        import torch

        shape = self.shape
        k, v = (
            cache.index_select(0, self.blocks).flatten(0, 1)[self.keys].transpose(0, 1) for cache in (k_cache, v_cache)
        )
        new = self.tokens.stop - self.tokens.start
        q = query[self.tokens].view(new, shape.num_kv_heads, shape.group, shape.head_size).permute(1, 2, 0, 3)
        rows = q.reshape(1, shape.num_kv_heads, shape.group * new, shape.head_size)
        mask = None if self.mask is None else self.mask.repeat(shape.group, 1)
        found = torch.nn.functional.scaled_dot_product_attention(
            rows, k[None], v[None], attn_mask=mask, scale=shape.scale
        )
        by_head = found.view(shape.num_kv_heads, shape.group, new, shape.head_size_v).permute(2, 0, 1, 3)
        out[self.tokens] = by_head.reshape(new, shape.num_heads, shape.head_size_v)


def _mask(shape: AttentionShape, start: int, end: int, first: int, device: Any) -> Any:
    """bool [queries, keys] of the queries from ``start`` and the keys from ``first`` on: which key is seen."""
    import torch

    position = torch.arange(start, end, device=device)[:, None]
    key = torch.arange(first, end, device=device)[None, :]
    seen = key <= position
    if shape.window:
        seen &= key > position - shape.window
    if shape.chunk:
        seen &= key >= position // shape.chunk * shape.chunk
    return seen
