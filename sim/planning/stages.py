"""Pipeline parallelism: which layers each stage holds, and its share of every group."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace

from sim.planning.group import KVCacheGroup


def layers_per_stage(num_layers: int, num_stages: int) -> list[int]:
    """How many consecutive layers each pipeline stage holds (vllm 0.33.0 distributed/utils.py:198).

    What does not divide goes one layer each to the stages before the last, from the back; the last stage gets none.

    >>> layers_per_stage(62, 4), layers_per_stage(7, 3), layers_per_stage(5, 4)
    ([15, 16, 16, 15], [2, 3, 2], [1, 1, 2, 1])
    """
    each, rest = divmod(num_layers, num_stages)
    counts = [each] * num_stages
    for position in range(2, rest + 2):
        counts[-position] += 1
    return counts


def split_layers(names: Sequence[str], num_stages: int) -> list[tuple[str, ...]]:
    """The layer names of each stage, in order."""
    stages, first = [], 0
    for count in layers_per_stage(len(names), num_stages):
        stages.append(tuple(names[first : first + count]))
        first += count
    return stages


def split_groups(groups: Sequence[KVCacheGroup], stages: Iterable[Collection[str]]) -> list[tuple[KVCacheGroup, ...]]:
    """Each stage's share of the groups; ``stages`` holds the names of each stage's layers."""
    return [project(groups, frozenset(stage)) for stage in stages]


def project(groups: Sequence[KVCacheGroup], stage: Collection[str]) -> tuple[KVCacheGroup, ...]:
    """Each group's layers that lie in ``stage``, which may be none (vllm 0.33.0 v1/core/kv_cache_planning.py:1413)."""
    return tuple(_projected(group, stage) for group in groups)


def _projected(group: KVCacheGroup, stage: Collection[str]) -> KVCacheGroup:
    kept = [(name, spec) for name, spec in zip(group.layer_names, group.layer_specs, strict=True) if name in stage]
    names, specs = tuple(name for name, _ in kept), tuple(spec for _, spec in kept)
    first = specs[0] if group.uniform_type and specs else group.spec
    return replace(group, layer_names=names, layer_specs=specs, spec=first)
