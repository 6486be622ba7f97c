"""In what units prefixes are hashed, where hits may end, and which groups are looked up together."""

from __future__ import annotations

import math
from collections.abc import Sequence

from sim.engine_config import EngineConfig
from sim.errors import RefusalError
from sim.planning.group import KVCacheGroup
from sim.specs import FullAttentionSpec, MambaSpec, Spec


def resolve_block_sizes(
    groups: Sequence[KVCacheGroup],
    *,
    enable_prefix_caching: bool = True,
    prefix_match_unit: int | None = None,
    dcp_world_size: int = 1,
) -> tuple[int, int]:
    """``(scheduler_block_size, hash_block_size)`` in tokens (vllm 0.33.0 v1/core/kv_cache_utils.py:816).

    Hits end at a multiple of the first, so that they end at a block's edge in every group; prefixes are hashed in
    units of the second, of which every group's block holds a whole number: the largest such unit, or the finer one
    asked for. Both are the first without prefix caching, and with one group. Raises RefusalError for a unit that does
    not divide the blocks, or where compressed states cannot be cut.
    """
    spans = [group.spec.token_span(dcp_world_size) for group in groups]
    scheduler_block_size = math.lcm(*spans)
    if not enable_prefix_caching or any(_keeps_one_state(group.spec) for group in groups):
        return scheduler_block_size, scheduler_block_size
    if len(groups) == 1:
        return _single(spans[0], prefix_match_unit), spans[0]
    hashed = [span for group, span in zip(groups, spans, strict=True) if group.prefix_cacheable] or spans
    unit = prefix_match_unit or math.gcd(*hashed)
    if any(span % unit for span in hashed):
        raise _bad_unit(
            unit, f"the groups' blocks of {', '.join(map(str, sorted(set(hashed))))} tokens are no multiple"
        )
    hits_end_at = unit if wants_fine_hits(groups, unit, dcp_world_size) else scheduler_block_size
    for group in groups:
        if group.prefix_cacheable and any(hits_end_at % spec.tokens_per_compressed_state for spec in group.layer_specs):
            raise _bad_unit(unit, f"hits would end at multiples of {hits_end_at}, inside a compressed state")
    return scheduler_block_size, unit


def _keeps_one_state(spec: Spec) -> bool:
    return isinstance(spec, MambaSpec) and spec.mamba_cache_mode != "align"


def _single(span: int, prefix_match_unit: int | None) -> int:
    if prefix_match_unit not in (None, span):
        raise _bad_unit(prefix_match_unit, f"with one group, hits end at its blocks of {span} tokens")
    return span


def _bad_unit(unit: int | None, why: str) -> RefusalError:
    return RefusalError(f"{unit} cannot be: {why}: vLLM refuses to start", where="engine.prefix_match_unit")


def wants_fine_hits(groups: Sequence[KVCacheGroup], hash_block_size: int, dcp_world_size: int = 1) -> bool:
    """Whether a group of aligned states has blocks larger than the hash unit, so that hits could end inside them.

    vllm 0.33.0 v1/core/kv_cache_utils.py:762.
    """
    least = hash_block_size if dcp_world_size > 1 else hash_block_size + 1
    return any(
        isinstance(spec, MambaSpec) and spec.mamba_cache_mode == "align" and spec.block_size >= least
        for group in groups
        for spec in group.layer_specs
    )


def partial_hash_hits_enabled(groups: Sequence[KVCacheGroup], hash_block_size: int, dcp_world_size: int = 1) -> bool:
    """Whether hits may end at any hash unit: wanted, and no group looks whole blocks up (windows, chunks).

    vllm 0.33.0 v1/core/kv_cache_utils.py:786.
    """
    return wants_fine_hits(groups, hash_block_size, dcp_world_size) and all(
        group.spec.fine_grained_hits or group.spec.token_span(dcp_world_size) == hash_block_size
        for group in groups
        if group.prefix_cacheable
    )


def fine_hits(groups: Sequence[KVCacheGroup], engine: EngineConfig, hash_block_size: int) -> bool:
    """Whether this engine's hits may end inside a block: several groups, prefix caching, and all of the above."""
    several = engine.enable_prefix_caching and len(groups) > 1
    return several and partial_hash_hits_enabled(groups, hash_block_size, engine.decode_context_parallel_size)


def joint_groups(groups: Sequence[KVCacheGroup]) -> tuple[tuple[int, ...], ...]:
    """Ids of the groups that share one spec, and so are looked up together, full attention first.

    Apart from that in order of first appearance; groups outside prefix caching are left out (vllm 0.33.0
    v1/core/kv_cache_coordinator.py:718).
    """
    by_spec: dict[Spec, list[int]] = {}
    for group_id, group in enumerate(groups):
        if group.prefix_cacheable:
            by_spec.setdefault(group.spec, []).append(group_id)
    full_first = sorted(by_spec, key=lambda spec: not isinstance(spec, FullAttentionSpec))
    return tuple(tuple(by_spec[spec]) for spec in full_first)
