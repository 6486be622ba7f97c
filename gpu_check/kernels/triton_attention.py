"""Launching the Triton kernel: which tiles, how many splits, in which configuration."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

from gpu_check.kernels.batch import Batch, first_key
from gpu_check.kernels.shape import AttentionShape, Run
from gpu_check.kernels.triton_loading import interpreted, load_kernels

MAX_HEAD_SIZE = 256
"""Wider heads (the latent vectors of MLA) would not fit into a multiprocessor's shared memory as one tile."""
MIN_HEAD_SIZE = 16
MAX_SPLITS = 64
MIN_STEPS = 4
"""A split takes at least this many steps of keys, or adding up costs more than it brings."""
PROGRAMS_PER_PROCESSOR = 4


@dataclass(frozen=True, slots=True)
class Config:
    """How the kernel is cut: rows of a tile (at least), keys of a step, warps of a program, loads in flight."""

    rows: int
    keys: int
    num_warps: int
    num_stages: int


DECODE_CONFIGS = (
    Config(16, 64, 4, 3),
    Config(16, 32, 2, 4),
    Config(16, 64, 4, 4),
    Config(16, 128, 4, 2),
    Config(16, 128, 8, 3),
    Config(16, 32, 4, 4),
)
"""For requests with one new token, the first the default; which is fastest depends on the GPU and is measured."""
PREFILL_CONFIG = Config(64, 64, 4, 2)
"""For chunks of prompts."""


@dataclass(frozen=True, slots=True)
class _Launch:
    """Tiles of one kind: int32 [tiles, 2] of (request, first new token) on the device, and the scratch of splits."""

    tiles: Any
    config: Config
    splits: int
    parts: Any
    stats: Any


def unsupported(shape: AttentionShape) -> str | None:
    """Why the kernel cannot serve this shape; None when it can."""
    widest, narrowest = max(shape.head_size, shape.head_size_v), min(shape.head_size, shape.head_size_v)
    if widest > MAX_HEAD_SIZE:
        return f"heads of {widest} elements are wider than {MAX_HEAD_SIZE}"
    if narrowest < MIN_HEAD_SIZE:
        return f"heads of {narrowest} elements are narrower than {MIN_HEAD_SIZE}"
    return None


def prepare(
    shape: AttentionShape, batch: Batch, *, decode: Config = DECODE_CONFIGS[0], splits: int | None = None
) -> Run:
    """Attention of ``batch``: requests with one new token in split tiles, chunks in unsplit ones.

    ``splits`` overrides into how many parts a decoding request's keys are cut. Raises RuntimeError where Triton cannot
    run on the batch's device.
    """
    device = batch.block_table.device
    kernels = load_kernels(on_cpu=device.type == "cpu")
    one = [(request, 0) for request, new in enumerate(batch.query_lens) if new == 1]
    config = _fitted(decode, shape, device)
    launches = [_launch(shape, one, config, splits or _splits(shape, batch, one, config), device)] if one else []
    config = _fitted(PREFILL_CONFIG, shape, device)
    many = [
        (request, first)
        for request, new in enumerate(batch.query_lens)
        if new > 1
        for first in range(0, new, config.rows // shape.group)
    ]
    launches += [_launch(shape, many, config, 1, device)] if many else []

    def run(query: Any, k_cache: Any, v_cache: Any, out: Any) -> None:
        for launch in launches:
            _start(kernels, shape, batch, launch, (query, k_cache, v_cache, out))

    return run


def _fitted(config: Config, shape: AttentionShape, device: Any) -> Config:
    """The configuration with rows for at least one token's heads, and steps whose stages shared memory can hold."""
    rows = max(config.rows, _power_of_two(shape.group))
    key_bytes = 2 * _power_of_two(max(shape.head_size, shape.head_size_v)) * shape.dtype.itemsize
    most = int(_shared_bytes(device) * SHARED_SHARE) // (key_bytes * config.num_stages)
    return replace(config, rows=rows, keys=max(16, min(config.keys, 1 << max(most, 1).bit_length() - 1)))


SHARED_SHARE = 0.9
"""Of a program's shared memory, for keys and values in flight; the rest is for the queries and the compiler."""


def _shared_bytes(device: Any) -> int:
    """Shared memory that one program may have: 227 KiB on Hopper, 163 on A100, 99 on consumer GPUs."""
    import torch

    if device.type != "cuda":
        return 99 << 10
    return int(getattr(torch.cuda.get_device_properties(device), "shared_memory_per_block_optin", 99 << 10))


def _power_of_two(n: int) -> int:
    """The next power of two.

    >>> [_power_of_two(n) for n in (1, 5, 64, 96)]
    [1, 8, 64, 128]
    """
    return 1 << (n - 1).bit_length()


def _splits(shape: AttentionShape, batch: Batch, tiles: list[tuple[int, int]], config: Config) -> int:
    """Into how many parts to cut the keys: enough programs for every multiprocessor, none with almost nothing to do."""
    import torch

    device = batch.block_table.device
    processors = torch.cuda.get_device_properties(device).multi_processor_count if device.type == "cuda" else 1
    longest = max(
        length - first_key(length - 1, shape.window, shape.chunk)
        for length in (batch.seq_lens[request] for request, _ in tiles)
    )
    wanted = math.ceil(PROGRAMS_PER_PROCESSOR * processors / (len(tiles) * shape.num_kv_heads))
    most = max(1, longest // (MIN_STEPS * config.keys))
    return min(_power_of_two(wanted), 1 << (most.bit_length() - 1), MAX_SPLITS)


def _launch(shape: AttentionShape, tiles: list[tuple[int, int]], config: Config, splits: int, device: Any) -> _Launch:
    import torch

    scratch = (len(tiles), shape.num_heads, splits) if splits > 1 else (1, 1, 1)
    return _Launch(
        torch.tensor(tiles, dtype=torch.int32, device=device),
        config,
        splits,
        torch.empty((*scratch, shape.head_size_v), dtype=torch.float32, device=device),
        torch.empty((*scratch, 2), dtype=torch.float32, device=device),
    )


def _start(
    kernels: Any, shape: AttentionShape, batch: Batch, launch: _Launch, tensors: tuple[Any, Any, Any, Any]
) -> None:
    """Start one launch, and the reduction where it has splits; the heads' elements must lie side by side."""
    import torch

    query, k_cache, v_cache, out = tensors
    tiles, config, heads = launch.tiles, launch.config, (shape.num_heads, shape.group)
    v_layout = (*v_cache.stride()[:3], shape.head_size_v, _power_of_two(shape.head_size_v))
    out_strides = tuple(out.stride()[:2])
    kernels.attend[(len(tiles), shape.num_kv_heads, launch.splits)](
        query,
        k_cache,
        v_cache,
        batch.block_table,
        tiles,
        batch.query_start,
        batch.seq_lens_there,
        out,
        launch.parts,
        launch.stats,
        batch.block_table.stride(0),
        shape.scale * math.log2(math.e),
        q_layout=tuple(query.stride()[:2]),
        k_layout=(*k_cache.stride()[:3], shape.head_size, _power_of_two(shape.head_size)),
        v_layout=v_layout,
        out_layout=out_strides,
        heads=heads,
        span=(shape.window, shape.chunk),
        block_size=shape.block_size,
        num_rows=config.rows,
        num_keys=config.keys,
        num_splits=launch.splits,
        precision="widened" if interpreted() else "ieee" if shape.dtype == torch.float32 else "tf32",
        num_warps=config.num_warps,
        num_stages=config.num_stages,
    )
    if launch.splits > 1:
        kernels.reduce_splits[(len(tiles), shape.num_heads)](
            launch.parts,
            launch.stats,
            tiles,
            batch.query_start,
            out,
            out_layout=out_strides,
            heads=heads,
            v_layout=v_layout,
            num_splits=launch.splits,
            splits_width=launch.splits,
        )
