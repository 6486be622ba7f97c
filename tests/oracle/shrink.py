"""Making a failing case small: drop requests, simplify the configuration, halve numbers, as long as it still fails."""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Iterator
from typing import Any

Case = dict[str, Any]
Fails = Callable[[Case], bool]

SIMPLER: dict[str, Any] = {
    "pipeline_parallel_size": 1,
    "async_scheduling": False,
    "scheduling_policy": "fcfs",
    "watermark": 0.0,
    "long_prefill_token_threshold": 0,
    "enable_chunked_prefill": True,
    "scheduler_reserve_full_isl": True,
    "disable_hybrid_kv_cache_manager": False,
    "prefix_cache_retention_interval": None,
    "enable_prefix_caching": False,
    "step_seconds": 0.01,
    "max_num_active_seqs": None,
    "long_prefill_token_threshold_adaptive": False,
    "prefill_schedule_interval": 1,
    "kv_cache_layout": "LBNHC",
    "enable_kv_cache_events": False,
    "prefix_match_unit": None,
    "enable_mamba_shared_prefix_checkpoint": False,
}
OPTIONAL_LAYER_KEYS = ("num_prefill_checkpoint_blocks", "tokens_per_state", "alignment", "bounded_replay")
PLAIN_REQUEST: dict[str, Any] = {
    "priority": 0,
    "cache_salt": None,
    "skip_cache": False,
    "output": None,
    "arrival_ns": 0,
}
SHRINKABLE = ("num_gpu_blocks", "max_model_len", "max_num_batched_tokens", "max_num_seqs", "block_size")


def shrink(case: Case, fails: Fails, *, seconds: float = 60.0) -> Case:
    """The smallest failing case found within the time; ``case`` itself must fail."""
    until = time.monotonic() + seconds
    best = copy.deepcopy(case) | {"sample_every": 1}
    if not fails(best):
        best = copy.deepcopy(case)
    progress = True
    while progress and time.monotonic() < until:
        progress = False
        for candidates in (_fewer_requests, _fewer_resets, _simpler_config, _simpler_requests):
            for candidate in _lasting(best, candidates, until):
                if fails(candidate):
                    best, progress = candidate, True
                    break
    return best


def _lasting(case: Case, candidates: Callable[[Case], Iterator[Case]], until: float) -> Iterator[Case]:
    for candidate in candidates(case):
        if time.monotonic() > until:
            return
        yield candidate


def _fewer_requests(case: Case) -> Iterator[Case]:
    """Leave out halves, quarters, … single requests, the last ones first."""
    requests = case["requests"]
    size = len(requests) // 2
    while size >= 1:
        for start in range(len(requests) - size, -1, -size):
            rest = requests[:start] + requests[start + size :]
            if rest:
                yield case | {"requests": rest}
        size //= 2


def _fewer_resets(case: Case) -> Iterator[Case]:
    for index in range(len(case.get("resets", []))):
        yield case | {"resets": case["resets"][:index] + case["resets"][index + 1 :]}


def _simpler_config(case: Case) -> Iterator[Case]:
    config = case["config"]
    aligned = any(layer.get("mamba_cache_mode") == "align" for layer in config["layers"])
    for key, value in SIMPLER.items():
        if aligned and key == "enable_prefix_caching":
            continue  # states are only aligned for it
        if config.get(key, value) != value:
            yield case | {"config": config | {key: value}}
    yield from (case | {"config": config | {"layers": layers}} for layers in _simpler_layers(config["layers"]))
    for key in SHRINKABLE:
        for value in (config[key] // 2, config[key] - 1):
            if value >= 1:
                yield case | {"config": _following(config | {key: value})}


def _simpler_layers(layers: list[Case]) -> Iterator[list[Case]]:
    """Fewer layers, then plainer ones."""
    for index, layer in enumerate(layers):
        before, after = layers[:index], layers[index + 1 :]
        if len(layers) > 1:
            yield [*before, *after]
        if layer.get("count", 1) > 1:
            yield [*before, layer | {"count": 1}, *after]
    for key in OPTIONAL_LAYER_KEYS:
        if any(layer.get(key) for layer in layers):
            yield [{name: value for name, value in layer.items() if name != key} for layer in layers]


def _following(config: Case) -> Case:
    """The configuration with the one state of a whole request, where there is one, as long as the longest request."""
    longest = {"block_size": config["max_model_len"]}
    whole = [layer | longest if layer.get("mamba_cache_mode") == "none" else layer for layer in config["layers"]]
    return config | {"layers": whole}


def _simpler_requests(case: Case) -> Iterator[Case]:
    """Plain values where they will do, then shorter prompts and outputs."""
    for index, request in enumerate(case["requests"]):
        for key, value in PLAIN_REQUEST.items():
            if request.get(key, value) != value:
                yield _with(case, index, request | {key: value})
        if request.get("max_tokens", request["output_tokens"]) != request["output_tokens"]:
            yield _with(case, index, request | {"max_tokens": request["output_tokens"]})
        if request["output_tokens"] > 1:
            for count in (1, request["output_tokens"] // 2, request["output_tokens"] - 1):
                yield _with(case, index, _ending_at(request, count))
        yield from (_with(case, index, request | {"prompt": prompt}) for prompt in _shorter(request["prompt"]))


def _ending_at(request: Case, count: int) -> Case:
    shorter = request | {"output_tokens": count, "max_tokens": count}
    if request.get("output"):
        shorter["output"] = [[request["output"][0][0], count]]
    return shorter


def _shorter(spans: list[list[Any]]) -> Iterator[list[list[Any]]]:
    for index, (content, count) in enumerate(spans):
        if len(spans) > 1:
            yield spans[:index] + spans[index + 1 :]
        for fewer in (count // 2, count - 1):
            if fewer >= 1:
                yield [*spans[:index], [content, fewer], *spans[index + 1 :]]


def _with(case: Case, index: int, request: Case) -> Case:
    return case | {"requests": [*case["requests"][:index], request, *case["requests"][index + 1 :]]}
