"""vLLM's own plan for given layers: groups, blocks, the startup line, refusals, and what one request really holds.

Runs inside the oracle environment, from the project's folder: ``python -m tests.oracle.planning_vllm``. Reads one case
as JSON per line on standard input (``tests/oracle/planning_cases.py`` makes them) and writes one answer per line. Every
number is vLLM's: its planner, its coordinator, its default budgets, and its scheduler stepping through one prompt.
"""

from __future__ import annotations

import copy
import json
import os
import re
import sys
import traceback
from collections import deque
from typing import Any

from tests.oracle.planning_alignment import theirs
from tests.oracle.planning_vllm_budgets import budgets
from tests.oracle.planning_vllm_specs import CLASSES, spec

REFUSALS = {
    "Invalid prefix_match_unit": "match unit",
    "Multi-module MTP": "several draft modules",
    "cannot be padded": "pages",
    "groups miss layers": "pages",
    "arg is an empty sequence": "pages",
    "DCP not support": "context parallel",
    "not supported for eagle + chunked": "chunks beside drafts",
    "not compatible with chunked local": "chunks",
    "cannot express this model": "layout",
    "does not have enough slots": "scheduler",
    "DCP with hybrid KV cache layouts": "context parallel",
    "requires at least one cacheable group": "nothing to cache",
    "windows that are replayed": "replayed",
    "bounded_replay": "not one kind",
    "needs_kv_cache_zeroing": "sinks",
    "Failed to promote": "not one kind",
    "must have the same window size": "not one kind",
    "No available memory": "no memory",
    "prefix_cache_retention_interval": "retention",
    "max_num_batched_tokens (": "scheduler",
    "long_prefill_token_threshold (": "scheduler",
}
SILENT = {
    "unify_kv_cache_spec_page_size": "cannot be padded",
    "page_size_bytes": "cannot be padded",
    "is_uniform_type": "groups miss layers",
}
"""Functions whose assertions have no text, and what they would say."""
TOO_SMALL = re.compile(
    r"max seq len \((?P<length>\d+)\), \((?P<needed>[\d.]+) GiB KV cache is needed, which is larger than the available"
    r" KV cache memory \((?P<available>[\d.]+) GiB\)\.(?: Based on the available memory, the estimated maximum model"
    r" length is (?P<estimate>\d+)\.)?"
)


def main() -> None:
    """Answer cases until standard input ends."""
    out = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # whatever a library prints goes to standard error
    os.environ.update(VLLM_USE_V2_MODEL_RUNNER="1", VLLM_NO_USAGE_STATS="1", HF_HUB_OFFLINE="1")
    os.environ.setdefault("VLLM_LOGGING_LEVEL", "CRITICAL")
    for line in sys.stdin:
        case = json.loads(line)
        reply = answer(case)
        print(json.dumps(reply), file=out, flush=True)


def answer(case: dict[str, Any]) -> dict[str, Any]:
    """vLLM's answer to one case of any sort."""
    if "alignment" in case:
        return theirs(case["alignment"])
    return budgets(case) if "gpu" in case else plan(case)


def plan(case: dict[str, Any]) -> dict[str, Any]:
    """The plan of one case, or the refusal."""
    try:
        return settled(case)
    except (ValueError, NotImplementedError, TypeError, AssertionError, StopIteration) as refusal:
        place = traceback.extract_tb(refusal.__traceback__)[-1]
        if not str(refusal) and place.name not in SILENT:
            raise
        return {"refused": refused(" ".join(str(refusal).split()) or SILENT[place.name])}


def refused(message: str) -> dict[str, Any]:
    """A refusal as numbers, for vLLM's text and ours differ."""
    if match := TOO_SMALL.search(message):
        numbers = {key: float(match[key]) for key in ("needed", "available")}
        return {"why": "too small", **numbers, "estimate": int(match["estimate"] or 0)}
    return {"why": next((why for text, why in REFUSALS.items() if text in message), message)}


def settled(case: dict[str, Any]) -> dict[str, Any]:
    """What vLLM's engine core settles before the first request (vllm 0.33.0 v1/engine/core.py:288-372)."""
    from vllm.v1.core import kv_cache_planning as planning
    from vllm.v1.core import kv_cache_utils as utils
    from vllm.v1.core.single_type_kv_cache_manager import register_all_kvcache_specs

    settings = plan_config(case)
    register_all_kvcache_specs(settings)
    workers = stage_specs(case)
    groups = planning.get_global_kv_cache_groups(settings, workers)
    available = [case["memory_bytes"] or 1 << 30] * len(workers)
    configs = planning.get_kv_cache_configs(settings, workers, available, groups)
    scheduler_config = utils.generate_scheduler_kv_cache_config(configs)
    managed = scheduler_config.kv_cache_groups
    sizes = [group.kv_cache_spec.block_size for group in managed if group.kv_cache_spec.prefix_cacheable]
    settings.cache_config.block_size = min(sizes or [group.kv_cache_spec.block_size for group in managed])
    settings.cache_config.num_gpu_blocks = scheduler_config.num_blocks
    check_replay(managed)
    tokens, concurrency = utils.get_kv_cache_capacity(settings, scheduler_config)
    hits_end_at = utils.resolve_cache_hit_alignment_tokens
    block_sizes = utils.resolve_kv_cache_block_sizes(scheduler_config, settings)
    return {
        "groups": [describe(group, wide) for group, wide in zip(managed, groups, strict=True)],
        "block_bytes": max(planning._pool_bytes_per_block(settings, config.kv_cache_groups) for config in configs),
        "num_blocks": scheduler_config.num_blocks,
        "scheduler_block_size": block_sizes[0],
        "hash_block_size": block_sizes[1],
        "kv_cache_size_tokens": tokens,
        "max_concurrency": concurrency,
        "max_in_flight_tokens": settings.max_in_flight_tokens,
        "admission_blocks": admission(settings, scheduler_config, settings.model_config.max_model_len),
        "spec_groups": joint_groups(settings, scheduler_config, block_sizes),
        "cache_hit_alignment_tokens": hits_end_at(scheduler_config, settings, *block_sizes),
        "requests": [one_request(settings, scheduler_config, block_sizes, tokens) for tokens in case["requests"]],
    }


def check_replay(groups: Any) -> None:
    """What the scheduler asserts before it makes the coordinator; no scheduler is made here.

    vllm 0.33.0 v1/core/sched/scheduler.py:311.
    """
    windows = {group.kv_cache_spec.prefix_replay_tokens for group in groups} - {0}
    assert len(windows) <= 1, f"windows that are replayed: {sorted(windows)}"


def plan_config(case: dict[str, Any]) -> Any:
    """vLLM's configuration with the flags that need no GPU to be checked set by hand."""
    from tests.oracle.vllm_build import vllm_config

    engine = case["engine"]
    settings = vllm_config({**engine, "layers": case["layers"]})
    settings.cache_config.num_gpu_blocks_override = case["num_gpu_blocks_override"]
    settings.cache_config.prefix_match_unit = engine["prefix_match_unit"]
    settings.cache_config.mamba_cache_mode = "align" if engine["enable_prefix_caching"] else "none"
    settings.parallel_config.decode_context_parallel_size = engine["decode_context_parallel_size"]
    return settings


def stage_specs(case: dict[str, Any]) -> list[dict[str, Any]]:
    """Each pipeline stage's layers, cut by vLLM."""
    from vllm.distributed.utils import get_pp_indices

    stages = case["engine"]["pipeline_parallel_size"]
    layers = [(entry["name"], spec(entry)) for entry in case["layers"]]
    cuts = [get_pp_indices(len(layers), rank, stages) for rank in range(stages)]
    return [dict(layers[first:last]) for first, last in cuts]


def describe(group: Any, wide: Any) -> dict[str, Any]:
    """One group: the spec the scheduler uses, the whole model's layers."""
    own = group.kv_cache_spec
    kinds = {name: kind for kind, name in CLASSES.items()}
    return {
        "kind": kinds[type(own).__name__],
        "sliding_window": getattr(own, "sliding_window", None),
        "attention_chunk_size": getattr(own, "attention_chunk_size", None),
        "layers": wide.layer_names,
        "block_size": own.block_size,
        "page_size_bytes": wide.kv_cache_spec.page_size_bytes,
        "page_size_padded": getattr(own, "page_size_padded", None),
        "is_eagle_group": group.is_eagle_group,
        "extra_retained_tokens": getattr(own, "extra_retained_tokens", 0),
    }


def admission(settings: Any, config: Any, length: int) -> list[int]:
    """Blocks per group that vLLM charges one request of ``length`` tokens for."""
    limit = settings.model_config.max_model_len
    settings.model_config.max_model_len = length
    specs = [group.kv_cache_spec for group in config.kv_cache_groups]
    blocks = [one.max_memory_usage_bytes(settings) // one.page_size_bytes for one in specs]
    settings.model_config.max_model_len = limit
    return blocks


def joint_groups(settings: Any, config: Any, block_sizes: tuple[int, int]) -> list[list[int]] | None:
    """The coordinator's look-up order; None where there is one group or no cache, so that nothing is looked up jointly.

    Building the coordinator also makes vLLM check the retention interval.
    """
    from vllm.v1.core.kv_cache_coordinator import get_kv_cache_coordinator

    small = copy.copy(config)
    small.num_blocks = 8
    coordinator = get_kv_cache_coordinator(
        kv_cache_config=small,
        max_model_len=settings.model_config.max_model_len,
        max_in_flight_tokens=settings.max_in_flight_tokens,
        use_eagle=drops_last_block(settings),
        enable_caching=settings.cache_config.enable_prefix_caching,
        enable_kv_cache_events=False,
        dcp_world_size=settings.parallel_config.decode_context_parallel_size,
        pcp_world_size=1,
        scheduler_block_size=block_sizes[0],
        hash_block_size=block_sizes[1],
        num_prefill_lookahead=settings.num_prefill_lookahead_tokens,
    )
    coordinator.find_longest_cache_hit([], 0)  # what fails for every request fails here
    found = getattr(coordinator, "attention_groups", None)
    return None if found is None else [list(group.group_ids) for group in found]


def drops_last_block(settings: Any) -> bool:
    """As the scheduler decides it (vllm 0.33.0 v1/core/sched/scheduler.py:330-345)."""
    drops = settings.speculative_config is not None and settings.speculative_config.use_eagle_block_drop()
    return drops and not settings.num_hash_lookahead_tokens


def one_request(settings: Any, config: Any, block_sizes: tuple[int, int], tokens: int) -> dict[str, Any]:
    """What vLLM's scheduler holds for one prompt alone: at most while it is computed, and at the end."""
    from vllm.sampling_params import SamplingParams
    from vllm.v1.core.kv_cache_utils import get_request_block_hasher, init_none_hash
    from vllm.v1.outputs import ModelRunnerOutput
    from vllm.v1.request import Request

    from tests.oracle.vllm_build import _python_hash

    scheduler = fresh_scheduler(settings, config, block_sizes, tokens)
    init_none_hash(_python_hash)
    hasher = get_request_block_hasher(block_sizes[1], _python_hash)
    request = Request("r", [0] * tokens, SamplingParams(max_tokens=8), None, block_hasher=hasher)
    scheduler.add_request(request)
    manager, in_flight = scheduler.kv_cache_manager, deque()
    peak = [0] * len(config.kv_cache_groups)
    while request.num_computed_tokens < tokens:
        output = scheduler.schedule()
        assert output.total_num_scheduled_tokens, "a lone prompt was not scheduled"
        peak = [max(pair) for pair in zip(peak, held(manager), strict=True)]
        sampled = [] if request.is_prefill_chunk else [1]
        in_flight.append((output, ModelRunnerOutput(["r"], {"r": 0}, [sampled])))
        if len(in_flight) == settings.max_concurrent_batches and request.num_computed_tokens < tokens:
            scheduler.update_from_output(*in_flight.popleft())
    manager.remove_skipped_blocks("r", tokens)
    return {"tokens": tokens, "resident": held(manager), "peak": peak, "admission": admission(settings, config, tokens)}


def fresh_scheduler(settings: Any, config: Any, block_sizes: tuple[int, int], tokens: int) -> Any:
    """A scheduler with room for one request of ``tokens`` tokens, whatever the plan's pool."""
    from tests.oracle.vllm_build import _structured_output

    roomy = copy.copy(config)
    roomy.num_blocks = 8 + sum(tokens // group.kv_cache_spec.block_size + 2 for group in config.kv_cache_groups)
    return settings.scheduler_config.get_scheduler_cls()(
        vllm_config=settings,
        kv_cache_config=roomy,
        structured_output_manager=_structured_output(),
        block_size=block_sizes[0],
        hash_block_size=block_sizes[1],
        log_stats=False,
    )


def held(manager: Any) -> list[int]:
    """Blocks the request holds in each group, null blocks left out."""
    return [sum(not block.is_null for block in blocks) for blocks in manager.coordinator.get_blocks("r")]


if __name__ == "__main__":
    main()
