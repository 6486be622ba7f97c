"""Which flag would move capacity most: each changed alone, the memory of the KV cache left as it is."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from sim.errors import HybridKVError
from sim.startup_log.recompute import Layout
from sim.startup_log.settings import Inputs


@dataclass(frozen=True, slots=True)
class Advice:
    """One flag, and how many requests of full length fit with it, against now."""

    flag: str
    concurrency: float
    factor: float
    note: str = ""


def advise(inputs: Inputs, layout: Layout, num_blocks: int | None) -> tuple[Advice, ...]:
    """The flags that help, the most first; none where the pool is not known."""
    if not num_blocks:
        return ()
    pool = num_blocks * layout.block_bytes
    now = num_blocks / layout.request_blocks(inputs.max_model_len)
    found = []
    for flag, changes, note in _changes(inputs):
        length = changes.get("max_model_len", inputs.max_model_len)
        try:
            other = Layout(replace(inputs, **changes).setting())
            fits = (pool // other.block_bytes) / other.request_blocks(length)
        except (HybridKVError, AssertionError, ZeroDivisionError, ValueError):
            continue
        if fits > now * 1.005:
            found.append(Advice(flag, fits, fits / now, note))
    return tuple(sorted(found, key=lambda advice: -advice.factor))


def _changes(inputs: Inputs) -> Iterator[tuple[str, dict[str, Any], str]]:
    if not inputs.kv_cache_dtype.startswith("fp8"):
        yield "--kv-cache-dtype fp8", {"kv_cache_dtype": "fp8"}, "where kernels and weights allow it"
    half = max(1, inputs.max_model_len // 2)
    yield f"--max-model-len {half}", {"max_model_len": half}, "requests of half the length"
    if inputs.max_num_batched_tokens > 2048:
        yield "--max-num-batched-tokens 2048", {"max_num_batched_tokens": 2048}, "windows are charged for it"
    if inputs.batches_in_flight > 1:
        yield "--no-async-scheduling", {"batches_in_flight": 1}, "slower steps"
    if inputs.enable_prefix_caching:
        yield "--no-enable-prefix-caching", {"enable_prefix_caching": False}, "no prefix hits"
    if inputs.method is not None:
        yield "no --speculative-config", {"method": None, "num_drafts": 0}, "no drafts"
    if inputs.disable_hybrid_kv_cache_manager:
        yield "--enable-hybrid-kv-cache-manager", {"disable_hybrid_kv_cache_manager": False}, ""
    ranks = 2 * inputs.tensor_parallel_size
    yield f"--tensor-parallel-size {ranks}", {"tensor_parallel_size": ranks}, "twice the GPUs, weights not counted"
