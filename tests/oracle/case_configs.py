"""Random engine configurations for the oracle: layers, block sizes, budgets and pools that make rules meet.

A configuration is a plain dict (``README.md`` lists its keys). The pool is sized from a rough plan of the groups, made
here on purpose rather than by the project: tight enough to force preemption and eviction, large enough that vLLM
starts. Where the rough plan is off, vLLM refuses, and then the project has to refuse too.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

Config = dict[str, Any]
Layer = dict[str, Any]

DTYPE_BYTES = {"bfloat16": 2, "float16": 2, "float32": 4}


def random_config(rng: np.random.Generator) -> Config:
    """One configuration; every choice is drawn from ``rng``."""
    block_size = int(rng.choice([1, 2, 3, 4, 5, 7, 8, 16], p=[0.08, 0.12, 0.1, 0.25, 0.1, 0.1, 0.1, 0.15]))
    max_model_len = int(rng.integers(24, 200)) if block_size < 16 else int(rng.integers(64, 300))
    layers = random_layers(rng, block_size, max_model_len)
    config: Config = {"layers": layers, **random_flags(rng, block_size, max_model_len)}
    _hybrid_switch(rng, config)
    config["prefix_cache_retention_interval"] = _retention(rng, config)
    stages = min(config["pipeline_parallel_size"], sum(layer["count"] for layer in layers))
    config["pipeline_parallel_size"] = stages  # every stage has a layer
    config["num_gpu_blocks"] = 1 + math.ceil(blocks_of_longest(config) * pool_factor(rng))
    return config


def random_flags(rng: np.random.Generator, block_size: int, max_model_len: int) -> Config:
    """The engine's flags and budgets, apart from what depends on the layers."""
    max_num_seqs = int(rng.integers(1, 13))
    config: Config = {
        "block_size": block_size,
        "max_model_len": max_model_len,
        "max_num_batched_tokens": max(max_num_seqs, int(rng.integers(4, 2 * max_model_len))),
        "max_num_seqs": max_num_seqs,
        "enable_prefix_caching": bool(rng.random() < 0.88),
        "prefix_cache_retention_interval": 0,
        "scheduler_reserve_full_isl": bool(rng.random() < 0.75),
        "watermark": float(rng.choice([0.0, 0.02, 0.1, 0.3], p=[0.75, 0.1, 0.1, 0.05])),
        "scheduling_policy": "priority" if rng.random() < 0.4 else "fcfs",
        "long_prefill_token_threshold": 0,
        "enable_chunked_prefill": bool(rng.random() < 0.85),
        "async_scheduling": bool(rng.random() < 0.5),
        "pipeline_parallel_size": int(rng.choice([1, 2, 3], p=[0.6, 0.25, 0.15])),
        "disable_hybrid_kv_cache_manager": False,
        "step_seconds": float(rng.choice([0.01, 0.010000001, 0.0003])),
    }
    _budgets(rng, config)
    return config


def random_layers(rng: np.random.Generator, block_size: int, max_model_len: int) -> list[Layer]:
    """One to four kinds of layers, sometimes interleaved as models interleave them, in construction order."""
    style = rng.choice(
        ["full", "window", "full+window", "windows", "sizes", "mixed"], p=[0.06, 0.08, 0.38, 0.12, 0.08, 0.28]
    )
    heads = [1, 2, 4] if rng.random() < 0.6 else [2, 3]
    kinds = _kinds(rng, str(style), heads, lambda: _window(rng, block_size, max_model_len))
    kinds = [kinds[index] for index in rng.permutation(len(kinds))]
    counts = [int(count) for count in rng.integers(1, 7, len(kinds))]
    if rng.random() < 0.5:
        return [dict(kind, count=count) for kind, count in zip(kinds, counts, strict=True)]
    return [
        dict(kind, count=1)
        for turn in range(max(counts))
        for kind, count in zip(kinds, counts, strict=True)
        if turn < count
    ]


def _kinds(rng: np.random.Generator, style: str, heads: list[int], window: Callable[[], int]) -> list[Layer]:
    """The different layers of a model, one of each."""
    if style == "full":
        return [_layer("full", None, 1)]
    if style == "window":
        return [_layer("sliding_window", window(), 1)]
    if style == "full+window":
        return [_layer("full", None, 1), _layer("sliding_window", window(), 1)]
    if style == "windows":
        return [_layer("sliding_window", window(), 1) for _ in range(int(rng.integers(2, 4)))]
    if style == "sizes":
        kind, width = ("full", None) if rng.random() < 0.5 else ("sliding_window", window())
        return [_layer(kind, width, int(count)) for count in rng.choice(heads, 2)]
    kinds = [_layer("full", None, int(rng.choice(heads)))]
    kinds += [_layer("sliding_window", window(), int(rng.choice(heads))) for _ in range(int(rng.integers(1, 4)))]
    if rng.random() < 0.3:
        kinds.append(_layer("full", None, int(rng.choice(heads))))
    return kinds


def _layer(kind: str, window: int | None, num_kv_heads: int) -> Layer:
    return {"kind": kind, "window": window, "num_kv_heads": num_kv_heads, "head_size": 8, "dtype": "bfloat16"}


def _window(rng: np.random.Generator, block_size: int, max_model_len: int) -> int:
    """A window: tiny, near a multiple of the block, anything, or beyond the longest sequence."""
    choice = rng.random()
    if choice < 0.15:
        return int(rng.integers(1, 4))
    if choice < 0.4:
        return max(1, block_size * int(rng.integers(1, 5)) + int(rng.integers(-1, 2)))
    return int(rng.integers(1, max_model_len + (10 if choice > 0.95 else -max_model_len // 3)))


def _budgets(rng: np.random.Generator, config: Config) -> None:
    if not config["enable_chunked_prefill"]:
        config["max_num_batched_tokens"] = config["max_model_len"] + int(rng.integers(0, config["max_model_len"]))
    if rng.random() < 0.3:
        longest = min(config["max_model_len"], config["max_num_batched_tokens"])
        config["long_prefill_token_threshold"] = int(rng.integers(1, longest + 1))


def _hybrid_switch(rng: np.random.Generator, config: Config) -> None:
    kinds = {layer["kind"] for layer in config["layers"]}
    windows = {layer["window"] for layer in config["layers"] if layer["window"]}
    if kinds == {"full", "sliding_window"} and len(windows) == 1:
        config["disable_hybrid_kv_cache_manager"] = bool(rng.random() < 0.15)


def _retention(rng: np.random.Generator, config: Config) -> int | None:
    choice = rng.random()
    windowed = any(layer["kind"] == "sliding_window" for layer in config["layers"])
    if choice < 0.35:
        return 0
    if choice < 0.65 or not windowed or config["disable_hybrid_kv_cache_manager"]:
        return None
    scheduler_block = math.lcm(*(size for _, _, size in rough_groups(config)))
    return scheduler_block * int(rng.integers(1, 6))


def pool_factor(rng: np.random.Generator) -> float:
    """How many times what one request of ``max_model_len`` needs the pool is: often once, seldom ten times."""
    choice = rng.random()
    if choice < 0.25:
        return 1.0
    if choice < 0.65:
        return 1.0 + float(rng.random()) * 0.6
    return 1.5 + float(rng.random()) * (2.0 if choice < 0.9 else 12.0)


def rough_groups(config: Config) -> list[tuple[str, int | None, int]]:
    """(kind, window, block size) of each group, as far as sizing a pool needs it.

    Equal specs share a bucket, buckets are cut into groups of the smallest bucket's size (of the largest when that
    is less than 1.5 times the smallest); smaller pages are brought to the largest by larger blocks where it divides.
    """
    specs: dict[tuple[str, int | None, int, str], int] = {}
    for layer in config["layers"]:
        kind = layer["kind"]
        window = layer["window"]
        if config["disable_hybrid_kv_cache_manager"]:
            kind, window = "full", None
        key = (kind, window, layer["num_kv_heads"] * layer["head_size"], layer["dtype"])
        specs[key] = specs.get(key, 0) + layer["count"]
    block = config["block_size"]
    if len({(kind, window) for kind, window, _, _ in specs}) == 1:
        kind, window, _, _ = next(iter(specs))
        return [(kind, window, block)]
    page = {key: key[2] * DTYPE_BYTES[key[3]] for key in specs}
    largest = max(page.values())
    buckets: dict[tuple[str, int | None, int], int] = {}
    for key, count in specs.items():
        size = block * (largest // page[key]) if largest % page[key] == 0 else block
        bucket = (key[0], key[1], size)
        buckets[bucket] = buckets.get(bucket, 0) + count
    smallest, most = min(buckets.values()), max(buckets.values())
    group_size = most if most < 1.5 * smallest else smallest
    return [bucket for bucket, count in buckets.items() for _ in range(math.ceil(count / group_size))]


def blocks_of_longest(config: Config) -> int:
    """Blocks vLLM demands at start: what one request of ``max_model_len`` may hold in all groups."""
    longest = config["max_model_len"]
    batches = config["pipeline_parallel_size"] + int(config["async_scheduling"])
    in_flight = batches * config["max_num_batched_tokens"]
    total = 0
    for kind, window, size in rough_groups(config):
        if kind == "full" or window is None:
            total += math.ceil(longest / size)
        else:
            total += math.ceil(min(window - 1 + in_flight, longest) / size) + 1
    return total
