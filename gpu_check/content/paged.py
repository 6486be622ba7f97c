"""An attention layer whose keys and values lie in blocks: written through block tables, read through them again."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from gpu_check.content.dense import attention
from gpu_check.content.held import NULL, Chunk
from gpu_check.content.small import Size, SmallLayer
from gpu_check.content.store import Store
from gpu_check.content.tokens import Text
from gpu_check.content.values import Vectors
from gpu_check.kernels import AttentionShape, padded_table, paged_attention
from gpu_check.kernels.paged import unsupported


class AttentionLayer:
    """One layer: its tokens' vectors, its cache, and its attention by the ``wanted`` kernel, or by torch alone.

    :attr:`kernel` is the one used.
    """

    def __init__(
        self, layer: SmallLayer, store: Store, size: Size, dtype: Any, device: Any, wanted: str = "gather"
    ) -> None:
        self.layer = layer
        self._k_cache, self._v_cache = store.caches(layer)
        self._dtype = dtype
        self._device = device
        heads, width = self._k_cache.shape[2:]
        self._keys = Vectors(3 * layer.number, (heads, width), device)
        self._values = Vectors(3 * layer.number + 1, (heads, width), device)
        self._queries = Vectors(3 * layer.number + 2, (heads * size.queries, width), device)
        self._dense: dict[str, tuple[Any, Any]] = {}
        sizes = (heads * size.queries, heads, width, int(self._v_cache.shape[-1]), layer.block_size)
        shape = AttentionShape(*sizes, dtype, width**-0.5, layer.window, layer.chunk)
        self.kernel = "gather" if unsupported(wanted, shape) else wanted

    def dense(self, name: str, text: Text) -> tuple[Any, Any]:
        """Keys and values of a whole text, float32 [tokens, heads, size]; a latent layer's values are half its keys."""
        known = self._dense.get(name)
        if known is None:
            keys = self._keys(text.tokens)
            values = keys[..., : self._v_cache.shape[-1]] if self.layer.latent else self._values(text.tokens)
            known = self._dense[name] = (keys, values)
        return known

    def forget(self, name: str) -> None:
        """Let go of a request that has ended."""
        self._dense.pop(name, None)

    def step(self, chunks: Sequence[Chunk], texts: Sequence[Text]) -> list[tuple[str, float]]:
        """Write the step's tokens, attend to what is there; for each chunk its kind and the largest error."""
        truth = [self.dense(chunk.name, text) for chunk, text in zip(chunks, texts, strict=True)]
        new = [slice(chunk.start, chunk.end) for chunk in chunks]
        self._write(
            chunks, *(torch.cat([part[i][rows] for part, rows in zip(truth, new, strict=True)]) for i in (0, 1))
        )
        query = self._queries(np.concatenate([text.tokens[rows] for text, rows in zip(texts, new, strict=True)]))
        found = paged_attention(
            query.to(self._dtype),
            self._k_cache,
            self._v_cache,
            padded_table([chunk.tables[self.layer.group] for chunk in chunks], self._device),
            [chunk.end for chunk in chunks],
            [chunk.end - chunk.start for chunk in chunks],
            scale=query.shape[2] ** -0.5,
            window=self.layer.window,
            chunk=self.layer.chunk,
            kernel=self.kernel,
        )
        return self._errors(chunks, truth, query, found.float())

    def compare_hit(self, chunk: Chunk, text: Text) -> list[tuple[int, bool]]:
        """The blocks of the chunk's hit, and whether each holds bit for bit what computing it again would write."""
        size, table = self.layer.block_size, chunk.tables[self.layer.group]
        found = []
        for index in range(-(-chunk.hit // size)):
            block = table[index]
            if block == NULL:
                continue
            rows = slice(index * size, min((index + 1) * size, chunk.hit))
            pairs = zip(self.dense(chunk.name, text), (self._k_cache, self._v_cache), strict=True)
            same = all(
                torch.equal(true[rows].to(self._dtype), cache[block, : rows.stop - rows.start]) for true, cache in pairs
            )
            found.append((block, same))
        return found

    def _write(self, chunks: Sequence[Chunk], keys: Any, values: Any) -> None:
        """Each token's key and value into its slot; a token without one is not written."""
        parts = zip(*(slots(chunk, self.layer) for chunk in chunks), strict=True)
        blocks, offsets = (torch.cat(part).to(self._device) for part in parts)
        there = blocks != NULL
        if not bool(there.all()):
            blocks, offsets, keys, values = blocks[there], offsets[there], keys[there], values[there]
        self._k_cache[blocks, offsets] = keys.to(self._dtype)
        if not self.layer.latent:
            self._v_cache[blocks, offsets] = values.to(self._dtype)

    def _errors(
        self, chunks: Sequence[Chunk], truth: Sequence[tuple[Any, Any]], query: Any, found: Any
    ) -> list[tuple[str, float]]:
        errors, first = [], 0
        for chunk, (keys, values) in zip(chunks, truth, strict=True):
            rows = slice(first, first + chunk.end - chunk.start)
            first = rows.stop
            true = attention(self.layer, keys, values, query[rows], chunk.start)
            what = "decode attention" if chunk.end - chunk.start == 1 else "prefill attention"
            errors.append((what, largest(found[rows] - true)))
        return errors


def largest(difference: Any) -> float:
    """The largest absolute value; infinite where there is a NaN."""
    worst = float(difference.abs().max()) if difference.numel() else 0.0
    return worst if worst == worst else float("inf")


def slots(chunk: Chunk, layer: SmallLayer) -> tuple[Any, Any]:
    """Block and offset of each token of a chunk, int64 on the CPU; block 0 where there is none."""
    table = np.asarray(chunk.tables[layer.group], dtype=np.int64)
    position = np.arange(chunk.start, chunk.end)
    index = position // layer.block_size
    blocks = np.where(index < len(table), table[np.minimum(index, len(table) - 1)], NULL)
    return torch.from_numpy(blocks), torch.from_numpy(position % layer.block_size)
