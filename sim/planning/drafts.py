"""What drafts that read hidden states change in the look-up of a plan's groups."""

from __future__ import annotations

from sim.engine_config import EngineConfig
from sim.planning.plan import KVCachePlan


def keeps_junction_states(plan: KVCachePlan, engine: EngineConfig) -> bool:
    """Whether ``enable_mamba_shared_prefix_checkpoint`` acts: beside one draft module, where hits end inside blocks.

    vllm 0.33.0 v1/core/kv_cache_manager.py:183.
    """
    eagle = plan.drops_last_block or any(group.is_eagle_group for group in plan.groups)
    wanted = engine.enable_mamba_shared_prefix_checkpoint and plan.enable_partial_hash_hits
    return wanted and eagle and engine.num_prefill_lookahead_tokens <= 1


def dropping_groups(plan: KVCachePlan) -> list[bool]:
    """Per group, whether its hits lose their last block: those with draft layers, or all where none has any.

    Groups of one spec are looked up together and drop together (vllm 0.33.0 v1/core/kv_cache_coordinator.py:125, :707).
    """
    if not plan.drops_last_block:
        return [False] * len(plan.groups)
    marked = [group.is_eagle_group for group in plan.groups]
    drops = marked if any(marked) else [True] * len(plan.groups)
    for ids in plan.spec_groups:
        together = any(drops[group] for group in ids)
        drops = [together if group in ids else drop for group, drop in enumerate(drops)]
    return drops
