"""What fits: from layers to groups, from memory to blocks, and vLLM's refusals on the way."""

from __future__ import annotations

from sim.planning.grouping import KVCacheGroup, get_kv_cache_groups
from sim.planning.plan import KVCachePlan, layer_specs, plan_kv_cache, plan_layers, resolve_block_sizes
from sim.planning.sizing import KVCacheMemoryError, Memory

__all__ = [
    "KVCacheGroup",
    "KVCacheMemoryError",
    "KVCachePlan",
    "Memory",
    "get_kv_cache_groups",
    "layer_specs",
    "plan_kv_cache",
    "plan_layers",
    "resolve_block_sizes",
]
