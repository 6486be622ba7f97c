"""Packed groups: where a block keeps its layers side by side, layers with pages of several sizes share it.

A bucket is a set of layers that always need equally many blocks. Where each of its page sizes occurs equally often, it
is a pattern that repeats, and it can be cut into groups of whole repeats. Rules: vllm 0.33.0
v1/core/kv_cache_planning.py:914.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sim.errors import RefusalError
from sim.planning.group import KVCacheGroup
from sim.planning.uniform import is_uniform_type
from sim.planning.unify import LayerSpecs
from sim.specs import CircularBufferSpec, MambaSpec, SlidingWindowSpec, Spec
from sim.units import cdiv


@dataclass(frozen=True, slots=True)
class Bucket:
    """Layers of one type, by name; ``by_page`` holds their names by page size in bytes, in order of appearance."""

    layers: dict[str, Spec]
    by_page: dict[int, list[str]]

    @property
    def first(self) -> Spec:
        """The first layer's spec."""
        return next(iter(self.layers.values()))

    @property
    def repeats(self) -> int:
        """How often the most frequent page size occurs."""
        return max(len(names) for names in self.by_page.values())

    @property
    def balanced(self) -> bool:
        """Whether every page size occurs equally often."""
        return len({len(names) for names in self.by_page.values()}) == 1

    def widest_group_bytes(self, num_groups: int) -> int:
        """Bytes of the largest of ``num_groups`` groups this bucket is cut into."""
        return sum(cdiv(len(names), num_groups) * page for page, names in self.by_page.items())

    def groups(self, num_groups: int) -> list[KVCacheGroup]:
        """The bucket cut into groups, row i of the pattern to group i modulo their number.

        Raises RefusalError where vLLM loses layers: rings of several sizes that do not make whole rows.
        """
        if num_groups == 1:
            return [_uniform(self.layers)]
        rows = list(zip(*self.by_page.values(), strict=False))
        if not self.balanced or num_groups > len(rows):
            raise RefusalError(
                f"layers of {self.first.kind} with pages of several sizes cannot be packed: vLLM fails to start",
                where="model.layers",
            )
        return [
            _uniform({name: self.layers[name] for row in rows[first::num_groups] for name in row})
            for first in range(num_groups)
        ]


def packed_groups(layers: LayerSpecs) -> tuple[KVCacheGroup, ...]:
    """The groups of a layout that keeps blocks together; none when all pages are equal already.

    >>> from sim.specs import FullAttentionSpec, SlidingWindowSpec
    >>> wide, narrow = FullAttentionSpec(16, 2, 64, "bfloat16"), FullAttentionSpec(16, 1, 64, "bfloat16")
    >>> window = SlidingWindowSpec(16, 1, 64, "bfloat16", sliding_window=32)
    >>> names = ["w0", "n0", "s0", "s1", "w1", "n1", "s2", "s3"]
    >>> layers = dict(zip(names, [wide, narrow, window, window] * 2))
    >>> [group.layer_names for group in packed_groups(layers)]
    [('w0', 'n0', 'w1', 'n1'), ('s0', 's2'), ('s1', 's3')]
    """
    if len({spec.page_size_bytes for spec in layers.values()}) <= 1:
        return ()
    buckets = [_bucket(members) for members in _uniform_buckets(layers)]
    repeats = _repeats_per_group(buckets)
    counts = [cdiv(bucket.repeats, repeats) if bucket.balanced and repeats else 1 for bucket in buckets]
    stateful = [_holds_states(bucket.first, repeats) for bucket in buckets]
    anchor = max(
        bucket.widest_group_bytes(len(bucket.layers) if states else count)
        for bucket, count, states in zip(buckets, counts, stateful, strict=True)
    )
    groups: list[KVCacheGroup] = []
    for bucket, count, states in zip(buckets, counts, stateful, strict=True):
        fitting = max(anchor // bucket.first.page_size_bytes, 1)  # states that the block holds anyway
        groups += bucket.groups(max(count, cdiv(len(bucket.layers), fitting)) if states else count)
    return tuple(groups)


def _uniform_buckets(layers: LayerSpecs) -> list[dict[str, Spec]]:
    buckets: list[dict[str, Spec]] = []
    for name, spec in layers.items():
        for bucket in buckets:
            if is_uniform_type([*bucket.values(), spec]):
                bucket[name] = spec
                break
        else:
            buckets.append({name: spec})
    return buckets


def _bucket(layers: dict[str, Spec]) -> Bucket:
    by_page: dict[int, list[str]] = {}
    for name, spec in layers.items():
        by_page.setdefault(spec.page_size_bytes, []).append(name)
    return Bucket(layers, by_page)


def _repeats_per_group(buckets: Sequence[Bucket]) -> int | None:
    """Repeats of the pattern in each group; None when no bucket mixes page sizes in balance.

    Such a bucket stays whole, so the largest of them sets the least; larger buckets of one size are cut towards it.
    """
    balanced = [bucket for bucket in buckets if bucket.balanced]
    least = max((bucket.repeats for bucket in balanced if len(bucket.by_page) > 1), default=0)
    return approximate_gcd([bucket.repeats for bucket in balanced], least) if least else None


def approximate_gcd(values: Sequence[int], least: int) -> int:
    """The number, ``least`` or more, whose multiples ``values`` are rounded up to at the least cost.

    >>> approximate_gcd([10, 20, 30], 1), approximate_gcd([10, 20, 31], 8)
    (10, 11)
    """
    if least > max(values):
        return least
    return min(range(least, max(values) + 1), key=lambda size: (sum(-value % size for value in values), -size))


def _holds_states(spec: Spec, repeats: int | None) -> bool:
    """Whether a bucket may be cut down to one layer per group: states, rings, and windows where nothing repeats."""
    return isinstance(spec, MambaSpec | CircularBufferSpec) or (repeats is None and isinstance(spec, SlidingWindowSpec))


def _uniform(layers: dict[str, Spec]) -> KVCacheGroup:
    specs = tuple(layers.values())
    return KVCacheGroup(tuple(layers), specs[0], specs, uniform_type=True)
