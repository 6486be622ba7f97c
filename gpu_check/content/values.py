"""Keys, values, queries and inputs of states: vectors that a token's identity stands for, the same wherever it occurs.

A vector is the mean of two rows of a fixed random table, chosen by bits of the identity that differ from layer to
layer; all its elements lie between -1 and 1. With 4,096 rows, two tokens share a vector once in 16 million.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from workloads.content import U64

_ROWS = 4096
_ODD = 0x9E3779B97F4A7C15
"""What spreads the numbers of tables over the identities."""


class Vectors:
    """Vectors of ``shape`` for tokens; ``number`` tells tables apart (layers; keys, values, queries)."""

    def __init__(self, number: int, shape: tuple[int, ...], device: Any) -> None:
        generator = torch.Generator().manual_seed(number)
        self._table = (torch.rand(_ROWS, *shape, generator=generator) * 2 - 1).to(device)
        self._mix = np.uint64((_ODD * (2 * number + 1)) % (1 << 64) | 1)
        self._device = device

    def __call__(self, tokens: U64) -> Any:
        """float32 [tokens, *shape]."""
        with np.errstate(over="ignore"):
            mixed = tokens * self._mix
        first = torch.from_numpy((mixed >> np.uint64(52)).astype(np.int64)).to(self._device)
        second = torch.from_numpy((mixed >> np.uint64(40) & np.uint64(_ROWS - 1)).astype(np.int64)).to(self._device)
        return (self._table[first] + self._table[second]) / 2
