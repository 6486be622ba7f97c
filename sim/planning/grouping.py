"""KV cache groups: which layers share one block table.

All groups draw blocks from one pool, so a block has the same bytes in each of them. A model of one kind of layer is one
group. A model of several kinds is cut into groups of equally many layers, one spec each; the missing layers of a short
group are padding, bytes that every block carries and nobody uses. Rules: vllm 0.33.0.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from sim.errors import RefusalError
from sim.planning.group import KVCacheGroup
from sim.planning.hidden_states import hidden_groups, hidden_layers
from sim.planning.packing import packed_groups
from sim.planning.promote import promote_to_full_attention, promoted
from sim.planning.uniform import is_uniform_type, merge_into_one
from sim.planning.unify import LayerSpecs, PageSizeError, unify_page_size
from sim.specs import (
    ChunkedLocalAttentionSpec,
    HiddenStateCacheSpec,
    MLAAttentionSpec,
    SlidingWindowMLASpec,
    SlidingWindowSpec,
    Spec,
    merge_specs,
)
from sim.units import cdiv


def group_size(bucket_sizes: Sequence[int]) -> int:
    """Layers per group: the smallest bucket, or the largest one if that is less than half as large again.

    >>> group_size([52, 10]), group_size([12, 13]), group_size([2, 3])
    (10, 13, 2)
    """
    smallest, largest = min(bucket_sizes), max(bucket_sizes)
    return largest if largest < 1.5 * smallest else smallest


def get_kv_cache_groups(
    layers: LayerSpecs,
    *,
    disable_hybrid_kv_cache_manager: bool = False,
    block_outermost: bool = False,
    layers_per_group: Callable[[Sequence[int]], int] = group_size,
) -> tuple[KVCacheGroup, ...]:
    """The groups of a model's layers, in vLLM's order; no layers, no groups (v1/core/kv_cache_planning.py:1113).

    ``block_outermost``: the layout keeps all layers of a block together, so that their pages may differ.
    ``layers_per_group`` chooses the size of groups from how many layers of each kind there are. Raises
    RefusalError where vLLM cannot start: the hybrid manager is off and the layers cannot become one type, or pages
    cannot be made equal.

    >>> from sim.specs import FullAttentionSpec, SlidingWindowSpec
    >>> full = FullAttentionSpec(16, 1, 64, "bfloat16")
    >>> window = SlidingWindowSpec(16, 1, 64, "bfloat16", sliding_window=32)
    >>> toy = {f"layers.{i}": full if i % 3 == 2 else window for i in range(30)}
    >>> [(group.kind, len(group.layer_names)) for group in get_kv_cache_groups(toy)]
    [('sliding_window', 10), ('sliding_window', 10), ('full_attention', 10)]
    """
    if disable_hybrid_kv_cache_manager:
        layers = promote_to_full_attention(layers)
    if not layers:
        return ()
    specs = tuple(layers.values())
    kinds = _distinct(specs)
    merged = merge_into_one(kinds)
    if merged is not None:
        return (KVCacheGroup(tuple(layers), merged, (merged,) * len(specs)),)
    if is_uniform_type(kinds):
        return (_uniform_group(layers),)
    return _hybrid_groups(layers, block_outermost, layers_per_group)


def _distinct(specs: Iterable[Spec]) -> list[Spec]:
    """Each object once, in order: layers of one kind share theirs."""
    return list({id(spec): spec for spec in specs}.values())


def _uniform_group(layers: LayerSpecs) -> KVCacheGroup:
    specs = tuple(layers.values())
    return KVCacheGroup(tuple(layers), specs[0], specs, uniform_type=True)


def _hybrid_groups(
    layers: LayerSpecs, block_outermost: bool, layers_per_group: Callable[[Sequence[int]], int]
) -> tuple[KVCacheGroup, ...]:
    """Groups of several kinds of layers; hidden states get groups of their own, last."""
    hidden = hidden_layers(layers)
    others = {name: spec for name, spec in layers.items() if name not in hidden}
    if not others:
        raise PageSizeError("hidden states of several sizes and nothing else: vLLM fails", where="model.layers")
    packed = packed_groups(others) if block_outermost else ()
    if packed:
        return (*packed, *(KVCacheGroup((name,), spec, (spec,)) for name, spec in hidden.items()))
    try:
        unified = unify_page_size(others)
    except PageSizeError:
        fallback = _full_allocation(layers)
        if fallback is None:
            raise
        return (fallback,)
    return hidden_groups(_equal_page_groups(unified, layers_per_group), hidden)


def _full_allocation(layers: LayerSpecs) -> KVCacheGroup | None:
    """One group of MLA and windows that keep every token, where their pages cannot be made equal; None if vLLM refuses.

    vllm 0.33.0 v1/core/kv_cache_planning.py:819.
    """
    specs = tuple(layers.values())
    if any(isinstance(spec, HiddenStateCacheSpec | SlidingWindowMLASpec | ChunkedLocalAttentionSpec) for spec in specs):
        return None
    if not all(any(isinstance(spec, kind) for spec in specs) for kind in (MLAAttentionSpec, SlidingWindowSpec)):
        return None
    try:
        full = promoted(layers)
    except RefusalError:
        return None
    return _uniform_group(full) if is_uniform_type(tuple(full.values())) else None


def _equal_page_groups(
    layers: LayerSpecs, layers_per_group: Callable[[Sequence[int]], int]
) -> tuple[KVCacheGroup, ...]:
    """Groups of several kinds of layers whose pages are equal (v1/core/kv_cache_planning.py:416).

    Every bucket of equal layers is dealt out like cards, layer i to group i modulo the number of its groups, so that a
    pipeline stage holds about its share of every group.
    """
    buckets = _buckets(layers)
    size = layers_per_group([len(bucket) for bucket in buckets])
    return tuple(
        _group(layers, bucket[first :: cdiv(len(bucket), size)], size)
        for bucket in buckets
        for first in range(cdiv(len(bucket), size))
    )


def _group(layers: LayerSpecs, names: Sequence[str], size: int) -> KVCacheGroup:
    merged = merge_specs(_distinct(layers[name] for name in names))
    if merged is None:
        raise AssertionError(f"layers {', '.join(names)} stand in one bucket and do not merge")
    return KVCacheGroup(tuple(names), merged, (merged,) * len(names), padding_layers=size - len(names))


def _buckets(layers: LayerSpecs) -> list[list[str]]:
    """Layer names by spec, in order of first appearance; specs that merge with all of a bucket join it."""
    by_spec: dict[Spec, list[str]] = {}
    for name, spec in layers.items():
        by_spec.setdefault(spec, []).append(name)
    buckets: list[tuple[list[str], list[Spec]]] = []
    for spec, names in by_spec.items():
        for bucket_names, bucket_specs in buckets:
            if merge_specs([*bucket_specs, spec]) is not None:
                bucket_names.extend(names)
                bucket_specs.append(spec)
                break
        else:
            buckets.append((list(names), [spec]))
    return [names for names, _ in buckets]
