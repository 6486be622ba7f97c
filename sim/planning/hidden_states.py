"""Layers that store hidden states: each has a group of its own, with pages as large as everybody's."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from sim.planning.group import KVCacheGroup
from sim.planning.unify import LayerSpecs
from sim.specs import HiddenStateCacheSpec
from sim.units import cdiv, dtype_bytes


def hidden_layers(layers: LayerSpecs) -> dict[str, HiddenStateCacheSpec]:
    """The layers that store hidden states, by name."""
    return {name: spec for name, spec in layers.items() if isinstance(spec, HiddenStateCacheSpec)}


def hidden_groups(groups: Sequence[KVCacheGroup], hidden: dict[str, HiddenStateCacheSpec]) -> tuple[KVCacheGroup, ...]:
    """``groups`` with one group more per hidden-state layer (vllm 0.33.0 v1/core/kv_cache_planning.py:1178-1197).

    A page must hold the hidden state of at least one token; where it does not, all groups get larger blocks. The block
    size of a hidden-state layer is the largest divisor of everybody's that fits the page; the rest is padding.
    """
    if not hidden:
        return tuple(groups)
    per_token = {name: spec.num_kv_heads * spec.head_size * dtype_bytes(spec.dtype) for name, spec in hidden.items()}
    page = groups[0].page_size_bytes
    scale = max(1, cdiv(max(per_token.values()), page))
    groups, page = [_scaled(group, scale) for group in groups], page * scale
    common = math.gcd(*(group.block_size for group in groups))
    sizes = {name: largest_divisor(common, max(page // per_token[name], 1)) for name in hidden}
    aligned = {name: replace(spec, block_size=sizes[name], page_size_padded=page) for name, spec in hidden.items()}
    return (*groups, *(KVCacheGroup((name,), spec, (spec,)) for name, spec in aligned.items()))


def _scaled(group: KVCacheGroup, scale: int) -> KVCacheGroup:
    """The group with blocks ``scale`` times as large; a state that was not padded keeps its page, as in vLLM."""
    if scale == 1:
        return group
    padded = group.spec.page_size_padded
    spec = replace(
        group.spec,
        block_size=group.spec.block_size * scale,
        page_size_padded=None if padded is None else padded * scale,
    )
    return replace(group, spec=spec, layer_specs=(spec,) * len(group.layer_specs))


def largest_divisor(number: int, limit: int) -> int:
    """The largest divisor of ``number`` that is at most ``limit``.

    >>> largest_divisor(48, 20), largest_divisor(16, 100)
    (16, 16)
    """
    return next(divisor for divisor in range(min(number, limit), 0, -1) if number % divisor == 0)
