"""Startup logs in vLLM's wording, written from numbers and flags."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

_UNSAID = ("deduced", "implied", "not stated", "?")


def log_text(case: Mapping[str, Any]) -> str:
    """The lines vLLM would have printed for a case, with its prefixes, colours and the line of its source."""
    return "\n".join(_lines(case)) + "\n"


def _lines(case: Mapping[str, Any]) -> Iterator[str]:
    version = str(case.get("vllm_version") or "")
    source = re.search(r"kv_cache_utils\.py:\d+", version)
    place = f"[{source[0]}]" if source else "[kv_cache_utils.py:1]"
    head = "\x1b[1;36m(EngineCore_DP0 pid=272)\x1b[0;0m INFO 10-15 09:12:51"
    if re.match(r"\d+\.\d+", version):
        yield f"INFO 10-15 09:12:01 [api_server.py:1839] vLLM API server version {version.split(maxsplit=1)[0]}"
    yield f"INFO 10-15 09:12:01 [utils.py:233] non-default args: {_args(case)!r}"
    if case["args"].get("VLLM_CPU_KVCACHE_SPACE"):
        yield f"{head} [cpu_worker.py:254] Explicitly set (8.0/31.2) GiB for KV cache on node 0."
    for gib in _list(case.get("available_kv_cache_memory_gib")):
        if "available_kv_cache_memory_bytes" not in case and "needed_gib" not in case:
            yield f"{head} [gpu_worker.py:298] Available KV cache memory: {gib} GiB"
    exact = case.get("available_kv_cache_memory_bytes")
    if exact is not None and "kv_cache_memory_bytes" not in case["args"]:
        yield f"{head} [worker.py:123] Available memory: {exact}, total memory: {exact * 2}"
    if (size := case.get("attention_block_size_set")) is not None:
        yield (
            f"{head} [interface.py:1109] Setting attention block size to {size} tokens to ensure that attention page"
            " size is >= mamba page size."
        )
    if (percent := case.get("mamba_padding_percent")) is not None:
        yield (
            f"{head} [interface.py:1133] Padding mamba page size by {percent:.2f}% to ensure that mamba page size and"
            " attention page size are exactly equal."
        )
    if isinstance(case.get("padding_layers"), int) and "padding_waste_percent" in case:
        layers, share = case["padding_layers"], case["padding_waste_percent"]
        yield f"{head} {place} Add {layers} padding layers, may waste at most {share:.2f}% KV cache memory"
    yield from _capacity(case, head, place)


def _capacity(case: Mapping[str, Any], head: str, place: str) -> Iterator[str]:
    if "num_gpu_blocks" in case:
        yield f"{head} [executor_base.py:111] # GPU blocks: {case['num_gpu_blocks']}, # CPU blocks: 0"
    if (tokens := case.get("gpu_kv_cache_size_tokens")) is not None:
        yield f"{head} {place} GPU KV cache size: {tokens:,} tokens"
    if (concurrency := case.get("max_concurrency")) is not None:
        length = case["max_concurrency_len"]
        yield f"{head} {place} Maximum concurrency for {length:,} tokens per request: {concurrency}x"
    if (blocks := case.get("mamba_cache_blocks")) is not None:
        yield f"ValueError: max_num_seqs (1024) exceeds available Mamba cache blocks ({blocks}). Each decode sequence"
    if (needed := case.get("needed_gib")) is not None:
        yield _refusal(case, needed)


def _refusal(case: Mapping[str, Any], needed: float) -> str:
    length = case.get("needed_for_len", case["args"]["max_model_len"])
    available = case.get("available_kv_cache_memory_gib") or round(case["available_kv_cache_memory_bytes"] / 2**30, 2)
    estimate = case.get("estimated_max_len")
    told = f"Based on the available memory, the estimated maximum model length is {estimate}. " if estimate else ""
    return (
        f"ValueError: To serve at least one request with the model's max seq len ({length}), ({needed:.2f} GiB KV cache"
        f" is needed, which is larger than the available KV cache memory ({available} GiB). {told}Try increasing"
        " `gpu_memory_utilization` or decreasing `max_model_len` when initializing the engine."
    )


def _list(value: Any) -> list[Any]:
    if value is None:
        return []
    return value if isinstance(value, list) else [value]


def _args(case: Mapping[str, Any]) -> dict[str, Any]:
    """The flags as vLLM logs them; what the case's author deduced is left out."""
    args: dict[str, Any] = {"model": case["model"]}
    for key, value in case["args"].items():
        if isinstance(value, str) and value.startswith("forced off"):
            args[key] = False
        elif key == "speculative":
            args["speculative_config"] = value if isinstance(value, dict) else {"method": value.lower()}
        elif value is not None and key[0].islower() and not any(word in str(value) for word in _UNSAID):
            args[key] = value.split()[0] if isinstance(value, str) else value
    return args
