"""The reference: attention over all tokens of a text, kept whole, in float32, with a mask and nothing else."""

from __future__ import annotations

from typing import Any

import torch

from gpu_check.content.small import SmallLayer

_ROWS = 256
"""Queries at a time, so that the matrix of scores stays small."""


def seen(layer: SmallLayer, position: int) -> int:
    """The first token that a query at ``position`` sees in this layer."""
    if layer.chunk:
        return position - position % layer.chunk
    return max(0, position + 1 - layer.window) if layer.window else 0


def attention(layer: SmallLayer, keys: Any, values: Any, query: Any, start: int) -> Any:
    """Attention of the queries of tokens ``start`` ...: float32 [queries, heads, size].

    ``query`` [queries, heads, size] is float32; ``keys`` and ``values`` [tokens, KV heads, size] are those of the text.
    """
    parts = []
    for first in range(0, query.shape[0], _ROWS):
        rows = query[first : first + _ROWS]
        low, high = start + first, start + first + rows.shape[0]
        begin = seen(layer, low)
        parts.append(_masked(layer, keys[begin:high], values[begin:high], rows, low, begin))
    return torch.cat(parts)


def _masked(layer: SmallLayer, k: Any, v: Any, query: Any, low: int, begin: int) -> Any:
    """Softmax over the keys each query sees; KV heads are shared by consecutive query heads."""
    rows, heads, width = query.shape
    grouped = query.reshape(rows, k.shape[1], heads // k.shape[1], width).permute(1, 2, 0, 3)
    scores = grouped @ k.permute(1, 2, 0)[:, None] * width**-0.5
    if rows > 1:
        scores.masked_fill_(~_visible(layer, low, rows, begin, k.shape[0], query.device), float("-inf"))
    found = torch.softmax(scores, dim=-1) @ v.transpose(0, 1)[:, None]
    return found.permute(2, 0, 1, 3).reshape(rows, heads, v.shape[2])


def _visible(layer: SmallLayer, low: int, rows: int, begin: int, keys: int, device: Any) -> Any:
    """bool [queries, keys]: which key is seen; a single query sees all that it is given."""
    position = torch.arange(low, low + rows, device=device)[:, None]
    key = torch.arange(begin, begin + keys, device=device)[None, :]
    visible = key <= position
    if layer.window:
        visible &= key > position - layer.window
    if layer.chunk:
        visible &= key // layer.chunk == position // layer.chunk
    return visible
