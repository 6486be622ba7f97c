"""A case's configuration -> vLLM's own scheduler. Runs inside the oracle environment only.

Nothing here decides anything: the groups, the block sizes, the refusals and the capacity are vLLM's own functions,
called in the order of ``vllm 0.33.0 v1/engine/core.py:120-180 and 285-350`` (no worker, no GPU, no model weights).
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import torch
from vllm.config import (
    CacheConfig,
    DeviceConfig,
    KVEventsConfig,
    KVTransferConfig,
    ModelConfig,
    ParallelConfig,
    SchedulerConfig,
    SpeculativeConfig,
    VllmConfig,
)
from vllm.distributed.utils import get_pp_indices
from vllm.model_executor.models.registry import ModelRegistry
from vllm.v1.core import kv_cache_utils
from vllm.v1.core.encoder_cache_manager import compute_mm_encoder_budget
from vllm.v1.core.kv_cache_utils import generate_scheduler_kv_cache_config, get_request_block_hasher, init_none_hash
from vllm.v1.core.sched import scheduler as scheduler_module
from vllm.v1.core.single_type_kv_cache_manager import register_all_kvcache_specs
from vllm.v1.structured_output import StructuredOutputManager

from tests.oracle.case_layers import has_encoder, keeps_states, named_layers
from tests.oracle.planning_vllm_specs import spec

try:  # a module of its own as of 0.33
    from vllm.v1.core import kv_cache_planning as planning
except ImportError:
    planning = kv_cache_utils

_CONFIG_JSON = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 64,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 4,
    "vocab_size": 1 << 31,
    "max_position_embeddings": 1 << 24,
    "torch_dtype": "bfloat16",
}

_FETCHES = {
    "kv_connector": "Fetches",
    "kv_connector_module_path": "tests.oracle.remote_vllm",
    "kv_role": "kv_consumer",
}


def _no_weights() -> type[torch.nn.Module]:
    """Stands in for the model class, which vLLM only inspects for the interfaces it supports."""

    def build(self: Any, vllm_config: Any = None, prefix: str = "") -> None:
        torch.nn.Module.__init__(self)

    def forward(self: Any, input_ids: Any, positions: Any, intermediate_tensors: Any = None) -> None: ...

    def accept(self: Any, *args: Any) -> None: ...

    members = {"__init__": build, "forward": forward, "supports_pp": True}
    for name in ("embed_input_ids", "compute_logits", "make_empty_intermediate_tensors"):
        members[name] = accept
    return type("NoWeights", (torch.nn.Module,), members)


@cache
def _model_folder(encoder: bool) -> str:
    folder = tempfile.mkdtemp(prefix="oracle-model-")
    (Path(folder) / "config.json").write_text(json.dumps(_CONFIG_JSON | {"is_encoder_decoder": encoder}))
    ModelRegistry.register_model("LlamaForCausalLM", _no_weights())
    return folder


@cache
def _structured_output() -> StructuredOutputManager:
    budgets = {"max_num_seqs": 8, "max_num_batched_tokens": 8, "max_model_len": 64}
    return StructuredOutputManager(vllm_config({"layers": [], **budgets}))


def vllm_config(config: dict[str, Any]) -> VllmConfig:
    """vLLM's configuration object for a case.

    The hybrid manager's switch is set by hand afterwards: without a GPU, VllmConfig would turn the hybrid manager off.
    """
    get = config.get
    encoder = has_encoder(config)
    scheduler = SchedulerConfig(
        max_model_len=config["max_model_len"],
        is_encoder_decoder=encoder,
        max_num_batched_tokens=config["max_num_batched_tokens"],
        max_num_seqs=config["max_num_seqs"],
        enable_chunked_prefill=get("enable_chunked_prefill", True),
        long_prefill_token_threshold=get("long_prefill_token_threshold", 0),
        policy=get("scheduling_policy", "fcfs"),
        scheduler_reserve_full_isl=get("scheduler_reserve_full_isl", True),
        watermark=get("watermark", 0.0),
        async_scheduling=get("async_scheduling", True),
        max_num_active_seqs=get("max_num_active_seqs"),
        long_prefill_token_threshold_adaptive=get("long_prefill_token_threshold_adaptive", False),
        prefill_schedule_interval=get("prefill_schedule_interval", 1),
    )
    cache_config = CacheConfig(
        block_size=get("block_size", 16),
        enable_prefix_caching=get("enable_prefix_caching", True),
        prefix_cache_retention_interval=get("prefix_cache_retention_interval", 0),
        num_gpu_blocks_override=get("num_gpu_blocks"),
        prefix_match_unit=get("prefix_match_unit"),
        enable_mamba_shared_prefix_checkpoint=get("enable_mamba_shared_prefix_checkpoint", False),
    )
    result = VllmConfig(
        model_config=ModelConfig(
            model=_model_folder(encoder),
            skip_tokenizer_init=True,
            dtype="bfloat16",
            max_model_len=config["max_model_len"],
        ),
        cache_config=cache_config,
        scheduler_config=scheduler,
        parallel_config=ParallelConfig(pipeline_parallel_size=get("pipeline_parallel_size", 1)),
        device_config=DeviceConfig("cpu"),
        kv_events_config=KVEventsConfig(enable_kv_cache_events=get("enable_kv_cache_events", False), publisher="null"),
        kv_transfer_config=KVTransferConfig(**_FETCHES) if get("remote_prefill") else None,
    )
    result.scheduler_config.disable_hybrid_kv_cache_manager = get("disable_hybrid_kv_cache_manager", False)
    result.cache_config.kv_cache_layout = get("kv_cache_layout", "LBHNC")
    result.cache_config.num_gpu_blocks = get("num_gpu_blocks")
    result.parallel_config.decode_context_parallel_size = get("decode_context_parallel_size", 1)  # without its ranks
    if get("speculative_method"):
        result.speculative_config = speculation(config)
        result._set_max_num_scheduled_tokens()
    return result


def speculation(config: dict[str, Any]) -> SpeculativeConfig:
    """vLLM's speculative configuration without a draft model to load."""
    result: Any = object.__new__(SpeculativeConfig)
    result.method = config["speculative_method"]
    result.num_speculative_tokens = config["num_speculative_tokens"]
    result.disable_eagle_block_drop = config.get("disable_eagle_block_drop", False)
    result.disable_lookahead_block_hashes = config.get("disable_lookahead_block_hashes", False)
    result.parallel_drafting = False
    result.num_speculative_tokens_per_batch_size = None
    draft = SimpleNamespace(num_nextn_predict_layers=config.get("num_mtp_modules", 1))
    result.draft_model_config = SimpleNamespace(hf_config=draft)
    made: SpeculativeConfig = result
    return made


def stage_specs(config: dict[str, Any]) -> list[dict[str, Any]]:
    """vLLM's specs of each pipeline stage's layers by name, in construction order, cut by vLLM."""
    layers = [(entry["name"], spec(entry)) for entry in named_layers(config)]
    stages = config.get("pipeline_parallel_size", 1)
    cuts = [get_pp_indices(len(layers), rank, stages) for rank in range(stages)]
    return [dict(layers[first:last]) for first, last in cuts]


def build_scheduler(config: dict[str, Any], *, default_hash: bool) -> tuple[Any, Callable[..., Any] | None]:
    """vLLM's scheduler for a case and the function that hashes a request's blocks (None: caching off).

    ``default_hash`` uses vLLM's own hash (for timing); otherwise Python's, faster and as good for comparing.
    Raises what vLLM raises where it refuses the configuration.
    """
    settings = vllm_config(config)
    if keeps_states(config) and settings.cache_config.enable_prefix_caching:
        settings.cache_config.mamba_cache_mode = "align"  # vllm 0.33.0 model_executor/models/config.py:763-785
    register_all_kvcache_specs(settings)
    workers = stage_specs(config)
    groups = planning.get_global_kv_cache_groups(settings, workers)
    kv_cache_configs = planning.get_kv_cache_configs(settings, workers, [1 << 50] * len(workers), groups)
    kv_cache_config = generate_scheduler_kv_cache_config(kv_cache_configs)
    settings.cache_config.num_gpu_blocks = kv_cache_config.num_blocks
    managed = [group.kv_cache_spec for group in kv_cache_config.kv_cache_groups]
    settings.cache_config.block_size = min(
        [own.block_size for own in managed if own.prefix_cacheable] or [own.block_size for own in managed]
    )
    scheduler_block, hash_block = kv_cache_utils.resolve_kv_cache_block_sizes(kv_cache_config, settings)
    scheduler_class = settings.scheduler_config.get_scheduler_cls()
    with _encoder_inputs(config):
        scheduler = scheduler_class(
            vllm_config=settings,
            kv_cache_config=kv_cache_config,
            structured_output_manager=_structured_output(),
            block_size=scheduler_block,
            hash_block_size=hash_block,
            log_stats=False,
        )
    if not settings.cache_config.enable_prefix_caching:
        return scheduler, None
    scheduler.kv_cache_manager.coordinator.find_longest_cache_hit([], 0)  # what fails for every request fails here
    hash_function = _vllm_hash(settings) if default_hash else _python_hash
    init_none_hash(hash_function)
    return scheduler, get_request_block_hasher(hash_block, hash_function, settings.num_hash_lookahead_tokens)


@contextmanager
def _encoder_inputs(config: dict[str, Any]) -> Iterator[None]:
    """Stands in for a processor of audio, which says how long an input to the encoder is; the budgets are vLLM's sums.

    vllm 0.33.0 multimodal/encoder_budget.py:119 asks the processor, which cannot be made without a checkpoint.
    """
    if not has_encoder(config):
        yield
        return

    def budget(settings: VllmConfig, registry: Any) -> SimpleNamespace:
        longest = {"audio": config["max_source_positions"]}
        compute, cache_size = compute_mm_encoder_budget(settings.scheduler_config, longest)
        return SimpleNamespace(
            mm_max_toks_per_item=longest, encoder_compute_budget=compute, encoder_cache_size=cache_size
        )

    with (
        patch.object(ModelConfig, "supports_multimodal_inputs", True),
        patch.object(scheduler_module, "MultiModalBudget", budget),
    ):
        yield


def describe_plan(scheduler: Any) -> dict[str, Any]:
    """What vLLM planned: groups, block sizes, blocks, batches in flight (for a person reading a difference)."""
    groups = [
        {
            "kind": type(group.kv_cache_spec).__name__,
            "window": getattr(group.kv_cache_spec, "sliding_window", None)
            or getattr(group.kv_cache_spec, "attention_chunk_size", None),
            "block_size": group.kv_cache_spec.block_size,
            "layers": len(group.layer_names),
        }
        for group in scheduler.kv_cache_config.kv_cache_groups
    ]
    return {
        "groups": groups,
        "num_blocks": scheduler.kv_cache_config.num_blocks,
        "scheduler_block_size": scheduler.block_size,
        "hash_block_size": scheduler.hash_block_size,
        "partial_hash_hits": bool(scheduler.kv_cache_manager.coordinator.enable_partial_hash_hits),
        "max_concurrent_batches": scheduler.vllm_config.max_concurrent_batches,
    }


def _vllm_hash(settings: VllmConfig) -> Callable[[Any], bytes]:
    from vllm.utils.hashing import get_hash_fn_by_name

    hash_function: Callable[[Any], bytes] = get_hash_fn_by_name(settings.cache_config.prefix_caching_hash_algo)
    return hash_function


def _python_hash(value: Any) -> bytes:
    return (hash(value) & 0xFFFF_FFFF_FFFF_FFFF).to_bytes(8, "little")
