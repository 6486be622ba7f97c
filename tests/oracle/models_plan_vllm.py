"""What vLLM's engine core makes of the specs of a model's layers: groups, blocks in given memory, concurrency.

Runs inside the oracle environment only; the specs come from ``tests/oracle/models_vllm.py``.
"""

from __future__ import annotations

import re
from typing import Any

ESTIMATE = re.compile(r"estimated maximum model length is (\d+)")
MEMORY = 40 << 30


def planned(settings: Any, specs: dict[str, Any]) -> dict[str, Any]:
    """The plan in 40 GiB, at the longest request that vLLM accepts there (vllm 0.33.0 v1/engine/core.py:255-350)."""
    from vllm.v1.core.single_type_kv_cache_manager import register_all_kvcache_specs

    if not specs:
        return {}
    _check_items(settings)
    register_all_kvcache_specs(settings)
    if any(getattr(spec, "non_causal", False) for spec in specs.values()):
        settings.scheduler_config.enable_chunked_prefill = False
        settings.cache_config.enable_prefix_caching = False
    try:
        return _planned(settings, specs)
    except ValueError as refusal:
        found = ESTIMATE.search(str(refusal))
        if not found:
            raise
        settings.model_config.max_model_len = int(found[1])
        return _planned(settings, specs)


def _check_items(settings: Any) -> None:
    """What vLLM says of items that have to fit a batch, where their tokens are known without a processor's files.

    As vllm 0.33.0 multimodal/encoder_budget.py:61-125, whose class wants a tokenizer.
    """
    from vllm.multimodal import MULTIMODAL_REGISTRY
    from vllm.v1.core.encoder_cache_manager import compute_mm_encoder_budget

    if not settings.model_config.supports_multimodal_inputs:
        return
    info = MULTIMODAL_REGISTRY.get_processing_info(settings.model_config)
    try:
        tokens = info.get_mm_max_tokens_per_item(settings.model_config.max_model_len, {})
    except (OSError, RuntimeError):  # there is no processor in the folder
        return
    embeds = settings.model_config.multimodal_config.enable_mm_embeds
    active = [name for name, count in info.allowed_mm_limits.items() if count > 0 or embeds]
    if tokens is not None:
        compute_mm_encoder_budget(settings.scheduler_config, {name: tokens[name] for name in active if name in tokens})


def _planned(settings: Any, specs: dict[str, Any]) -> dict[str, Any]:
    from vllm.distributed.kv_transfer.kv_connector.utils import get_current_attn_backends
    from vllm.v1.attention.backends.utils import get_supported_kv_cache_layouts, resolve_kv_cache_layout
    from vllm.v1.core import kv_cache_planning as planning
    from vllm.v1.core import kv_cache_utils as utils

    supported = [layout.name for layout in get_supported_kv_cache_layouts(get_current_attn_backends(settings))]
    layout = resolve_kv_cache_layout(settings, [supported], list(specs.values()))
    groups = planning.get_global_kv_cache_groups(settings, [specs])
    configs = planning.get_kv_cache_configs(settings, [specs], [MEMORY], groups)
    config = utils.generate_scheduler_kv_cache_config(configs)
    managed = config.kv_cache_groups
    sizes = [group.kv_cache_spec.block_size for group in managed if group.kv_cache_spec.prefix_cacheable]
    settings.cache_config.block_size = min(sizes or [group.kv_cache_spec.block_size for group in managed])
    settings.cache_config.num_gpu_blocks = config.num_blocks
    tokens, concurrency = utils.get_kv_cache_capacity(settings, config)
    settings.validate_block_size()
    scheduler_block_size, hash_block_size = utils.resolve_kv_cache_block_sizes(config, settings)
    return {
        "layout": layout.name,
        "groups": [
            [len(wide.layer_names), group.kv_cache_spec.block_size, wide.kv_cache_spec.page_size_bytes]
            for group, wide in zip(managed, groups, strict=True)
        ],
        "block_bytes": max(planning._pool_bytes_per_block(settings, one.kv_cache_groups) for one in configs),
        "num_blocks": config.num_blocks,
        "kv_cache_size_tokens": tokens,
        "max_concurrency": concurrency,
        "max_in_flight_tokens": settings.max_in_flight_tokens,
        "scheduler_block_size": scheduler_block_size,
        "hash_block_size": hash_block_size,
    }
