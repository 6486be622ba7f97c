"""What fits: from layers to groups, from memory to blocks, and vLLM's refusals on the way."""

from __future__ import annotations

from sim.planning.block_sizes import joint_groups, partial_hash_hits_enabled, resolve_block_sizes
from sim.planning.group import KVCacheGroup
from sim.planning.grouping import get_kv_cache_groups
from sim.planning.layers import layer_specs, stage_names
from sim.planning.media import smallest_batch
from sim.planning.plan import KVCachePlan, effective_engine, engine_groups, plan_kv_cache, plan_layers
from sim.planning.sizing import KVCacheMemoryError, Memory
from sim.planning.smallest_hit import SmallestHit, smallest_hit
from sim.planning.state_blocks import most_running, seqs_warning

__all__ = [
    "KVCacheGroup",
    "KVCacheMemoryError",
    "KVCachePlan",
    "Memory",
    "SmallestHit",
    "effective_engine",
    "engine_groups",
    "get_kv_cache_groups",
    "joint_groups",
    "layer_specs",
    "most_running",
    "partial_hash_hits_enabled",
    "plan_kv_cache",
    "plan_layers",
    "resolve_block_sizes",
    "seqs_warning",
    "smallest_batch",
    "smallest_hit",
    "stage_names",
]
