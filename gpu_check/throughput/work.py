"""A step as work for a device: per layer tokens times weights, keys and values written, attention through tables."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gpu_check.kernels import make_batch, prepare
from gpu_check.throughput.body import Body, LayerKind
from gpu_check.throughput.clock import Work
from gpu_check.throughput.composition import Composition, visible_blocks

WEIGHT_BYTES = 256 << 20
"""Layers take turns with weights of at least this many bytes together, more than a cache holds (or all of them)."""
SEED = 1


def renumbered(kind: LayerKind, step: Composition) -> tuple[NDArray[np.int32], int]:
    """Block table [requests, blocks] of the step for a kind of layer, and how many blocks it names.

    Of the simulator's ids only their order and who shares them is kept, so that a part of the pool is enough; blocks
    of steps that are made up lie in random order. Entries that no query sees are 0, as a window leaves them.
    """
    shape = kind.shape
    spans = [
        visible_blocks(start, new, shape.window, shape.chunk, shape.block_size)
        for start, new in zip(step.starts, step.news, strict=True)
    ]
    count = sum(len(span) for span in spans)
    if step.tables is None:
        ids = np.random.default_rng(SEED).permutation(count)
    else:
        given = [step.tables[kind.group][request][span.start : span.stop] for request, span in enumerate(spans)]
        ids = np.unique(np.concatenate([np.array(row, np.int64) for row in given]), return_inverse=True)[1]
    table, at = np.zeros((len(spans), max(span.stop for span in spans)), np.int32), 0
    for request, span in enumerate(spans):
        table[request, span.start : span.stop] = ids[at : at + len(span)]
        at += len(span)
    return table, int(ids.max()) + 1


def cache_bytes(body: Body, step: Composition) -> int:
    """Bytes of keys and values that a step needs at hand: one layer of each kind."""
    total = 0
    for kind in body.kinds:
        shape = kind.shape
        row = shape.num_kv_heads * (shape.head_size + shape.head_size_v) * body.dtype.itemsize
        total += renumbered(kind, step)[1] * shape.block_size * row
    return total


class Bench:
    """Weights and caches of a body on a device; layers of one kind take turns with one cache.

    ``steps`` are all that will be run: caches are made as large as the largest of them needs.
    """

    def __init__(self, body: Body, device: Any, kernel: str, steps: Sequence[Composition]) -> None:
        import torch

        self.body, self.device, self.kernel = body, device, kernel
        generator = torch.Generator(device=device).manual_seed(SEED)

        def noise(*size: int) -> Any:
            return torch.empty(size, dtype=body.dtype, device=device).normal_(generator=generator)

        layer_bytes = body.hidden * (body.width + body.experts * body.expert_width) * body.dtype.itemsize
        copies = max(1, min(body.num_layers, math.ceil(WEIGHT_BYTES / layer_bytes)))
        self._dense = [noise(body.hidden, body.width) for _ in range(copies)]
        self._experts = [noise(body.experts, body.hidden, body.expert_width) for _ in range(copies)]
        self._noise = noise
        self._caches = []
        for kind in body.kinds:
            shape = kind.shape
            blocks = max(renumbered(kind, step)[1] for step in steps)
            page = (blocks, shape.block_size, shape.num_kv_heads)
            self._caches.append((noise(*page, shape.head_size), noise(*page, shape.head_size_v)))

    def step(self, step: Composition) -> Work:
        """The whole step, ready to run."""
        attention = [
            (kind.count, self.write(i, step), self.attention(i, step)) for i, kind in enumerate(self.body.kinds)
        ]
        rest = [self.rest(step.tokens, i) for i in range(len(self._dense))]

        def run() -> None:
            layer = 0
            for count, write, attend in attention:
                for _ in range(count):
                    rest[layer % len(rest)]()
                    write()
                    attend()
                    layer += 1

        return run

    def attention(self, kind: int, step: Composition) -> Work:
        """Attention of one layer of a kind."""
        import torch

        shape = self.body.kinds[kind].shape
        table, _ = renumbered(self.body.kinds[kind], step)
        k_cache, v_cache = self._caches[kind]
        batch = make_batch(torch.from_numpy(table).to(self.device), step.ends, step.news)
        run = prepare(self.kernel, shape, batch)
        query = self._noise(step.tokens, shape.num_heads, shape.head_size)
        out = torch.empty((step.tokens, shape.num_heads, shape.head_size_v), dtype=shape.dtype, device=self.device)
        return lambda: run(query, k_cache, v_cache, out)

    def write(self, kind: int, step: Composition) -> Work:
        """Keys and values of the new tokens of one layer of a kind, into their slots."""
        import torch

        shape = self.body.kinds[kind].shape
        table, _ = renumbered(self.body.kinds[kind], step)
        slots = [
            table[request, np.arange(start, start + new) // shape.block_size].astype(np.int64) * shape.block_size
            + np.arange(start, start + new) % shape.block_size
            for request, (start, new) in enumerate(zip(step.starts, step.news, strict=True))
        ]
        places = torch.from_numpy(np.concatenate(slots)).to(self.device)
        caches = [cache.flatten(0, 1) for cache in self._caches[kind]]
        values = [self._noise(step.tokens, *cache.shape[1:]) for cache in caches]

        def run() -> None:
            for cache, value in zip(caches, values, strict=True):
                cache.index_copy_(0, places, value)

        return run

    def rest(self, tokens: int, layer: int = 0) -> Work:
        """Matrix products of one layer: all tokens with the dense weights, and with the experts they are sent to."""
        import torch

        body = self.body
        dense, experts = self._dense[layer], self._experts[layer]
        x = self._noise(tokens, body.hidden)
        out = torch.empty((tokens, body.width), dtype=body.dtype, device=self.device)
        if not body.experts:
            return lambda: torch.mm(x, dense, out=out)
        touched = touched_experts(body.experts, body.experts_per_token, tokens)
        sent = self._noise(touched, math.ceil(tokens * body.experts_per_token / touched), body.hidden)

        def run() -> None:
            torch.mm(x, dense, out=out)
            torch.bmm(sent, experts[:touched])

        return run


def touched_experts(experts: int, per_token: int, tokens: int) -> int:
    """How many experts ``tokens`` tokens are sent to on average, if each is as likely.

    >>> touched_experts(128, 4, 1), touched_experts(128, 4, 16), touched_experts(128, 4, 4096)
    (4, 51, 128)
    """
    return max(per_token, round(experts * (1 - (1 - per_token / experts) ** tokens)))
