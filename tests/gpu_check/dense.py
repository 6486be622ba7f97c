"""Attention the slow, obvious way: all scores of a request as one matrix in float64, no block table in sight."""

from __future__ import annotations

from typing import Any

import torch


def dense_attention(query: Any, keys: Any, values: Any, start: int, window: int, chunk: int, scale: float) -> Any:
    """[queries, heads, size_v]; ``keys`` [tokens, kv_heads, size] are those of all tokens of the request from 0 on."""
    position = torch.arange(start, start + len(query))[:, None]
    key = torch.arange(len(keys))[None, :]
    seen = key <= position
    if window:
        seen &= position - key < window
    if chunk:
        seen &= key // chunk == position // chunk
    group = query.shape[1] // keys.shape[1]
    k, v = (tensor.double().repeat_interleave(group, 1) for tensor in (keys, values))
    scores = torch.einsum("qhd,khd->hqk", query.double(), k) * scale
    weights = torch.softmax(scores.masked_fill(~seen, float("-inf")), -1)
    return torch.einsum("hqk,khd->qhd", weights, v)
