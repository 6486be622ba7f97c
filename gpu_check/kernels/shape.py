"""What the attention of one layer is like: heads, sizes, span, and the pages its keys and values lie in."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

Run = Callable[[Any, Any, Any, Any], None]
"""``run(query, k_cache, v_cache, out)``: attention of the batch it was prepared for, written to ``out``."""


@dataclass(frozen=True, slots=True)
class AttentionShape:
    """One layer's attention on one rank; sizes in elements.

    ``window`` and ``chunk`` are in tokens, 0 where there is none: a query sees its own token and ``window - 1`` before
    it, or what of its chunk precedes it. ``dtype`` is the ``torch.dtype`` of queries, keys and values.
    """

    num_heads: int
    num_kv_heads: int
    head_size: int
    head_size_v: int
    block_size: int
    dtype: Any
    scale: float
    window: int = 0
    chunk: int = 0

    @property
    def group(self) -> int:
        """Query heads of one KV head."""
        return self.num_heads // self.num_kv_heads


def shape_of(query: Any, k_cache: Any, v_cache: Any, scale: float, window: int, chunk: int) -> AttentionShape:
    """The shape that these tensors have; ValueError where they do not belong together."""
    heads, kv_heads = int(query.shape[1]), int(k_cache.shape[2])
    if heads % kv_heads or query.shape[2] != k_cache.shape[3] or k_cache.shape[:3] != v_cache.shape[:3]:
        raise ValueError(f"query {tuple(query.shape)}, keys {tuple(k_cache.shape)}, values {tuple(v_cache.shape)}")
    return AttentionShape(
        heads,
        kv_heads,
        int(k_cache.shape[3]),
        int(v_cache.shape[3]),
        int(k_cache.shape[1]),
        query.dtype,
        scale,
        window,
        chunk,
    )
