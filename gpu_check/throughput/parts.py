"""Times of single parts of a step, over batch x context x window, and the bandwidth that attention reaches."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from gpu_check.throughput.axes import Axes
from gpu_check.throughput.body import Body, all_full
from gpu_check.throughput.clock import Clock
from gpu_check.throughput.composition import Composition, made_up
from gpu_check.throughput.work import Bench, cache_bytes

PARTS = ("decode attention", "prefill attention", "KV write", "matrix product")


@dataclass(frozen=True, slots=True)
class Part:
    """One timed part: ``requests`` of ``context`` tokens each, ``tokens`` new ones together; ``window`` 0 is full.

    ``bytes_read`` are keys and values that attention reads, 0 of other parts.
    """

    part: str
    requests: int
    context: int
    tokens: int
    window: int
    seconds: float
    bytes_read: int = 0


def timed_parts(bench: Bench, axes: Axes, clock: Clock) -> list[Part]:
    """The four parts: attention of each kind of layer, writes of keys and values, matrix products of a layer."""
    found = []
    for index, kind in enumerate(bench.body.kinds):
        window = kind.shape.window or kind.shape.chunk
        for (decodes, context, prefill), step in axes.steps().items():
            if decodes and prefill:
                continue
            name = PARTS[1] if prefill else PARTS[0]
            seconds = clock.measure(bench.attention(index, step))
            read = _bytes_read(bench.body, index, step) if not prefill else 0
            found.append(Part(name, len(step.news), context, step.tokens, window, seconds, read))
    for tokens in sorted({count for count in (*axes.decodes, *axes.prefills) if count}):
        step = made_up(0, 0, tokens)
        found.append(Part(PARTS[2], 1, 0, tokens, 0, clock.measure(bench.write(0, step))))
        found.append(Part(PARTS[3], 1, 0, tokens, 0, clock.measure(bench.rest(tokens))))
    return found


def decode_bandwidth(body: Body, device: Any, kernel: str, axes: Axes, clock: Clock, budget: int) -> Part | None:
    """Full-attention decode at the headline batch and context, the batch halved until it fits; None if nothing does."""
    batch, context = axes.headline
    full = all_full(replace(body, kinds=body.kinds[:1]))
    while batch and cache_bytes(full, made_up(batch, context, 0)) > budget:
        batch //= 2
    if not batch:
        return None
    step = made_up(batch, context, 0)
    seconds = clock.measure(Bench(full, device, kernel, [step]).attention(0, step))
    return Part(PARTS[0], batch, context, batch, 0, seconds, _bytes_read(full, 0, step))


def _bytes_read(body: Body, kind: int, step: Composition) -> int:
    """Bytes of the keys and values that decoding requests see in one layer."""
    shape = body.kinds[kind].shape
    span = shape.window or step.ends[0]
    tokens = sum(min(end, span) for end in step.ends)
    return int(tokens * shape.num_kv_heads * (shape.head_size + shape.head_size_v) * body.dtype.itemsize)
