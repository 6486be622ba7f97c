"""KV cache groups: which layers share one block table.

All groups draw blocks from one pool, so a block has the same bytes in each of them. A model of one kind of layer is one
group. A model of several kinds is cut into groups of equally many layers, one spec each; the missing layers of a short
group are padding, bytes that every block carries and nobody uses. Rules: vllm 0.33.0.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sim.planning.uniform import is_uniform_type, merge_into_one
from sim.planning.unify import LayerSpecs, promote_to_full_attention, unify_page_size
from sim.specs import Kind, Spec, merge_specs
from sim.units import cdiv


@dataclass(frozen=True, slots=True)
class KVCacheGroup:
    """Layers that share one block table, with the spec the scheduler manages that table by.

    ``layer_specs`` holds one spec per layer; they differ only in a group of one type with several sizes
    (``uniform_type``), of which ``spec`` is then the first. ``padding_layers`` are what is missing to the size of the
    other groups. Block size in tokens.
    """

    layer_names: tuple[str, ...]
    spec: Spec
    layer_specs: tuple[Spec, ...]
    padding_layers: int = 0
    uniform_type: bool = False

    @property
    def kind(self) -> Kind:
        """Full attention or sliding window: how the blocks are managed, not how attention is computed."""
        return self.spec.kind

    @property
    def window(self) -> int | None:
        """The window in tokens that blocks are freed by; None for full attention, also when it has a note of one."""
        return self.spec.sliding_window if self.spec.kind == "sliding_window" else None

    @property
    def block_size(self) -> int:
        """Tokens per block."""
        return self.spec.block_size

    @property
    def layer_bytes(self) -> int:
        """Bytes of one block that the group's layers use: the sum of their pages, without padding layers."""
        return sum(spec.page_size_bytes for spec in self.layer_specs)

    @property
    def page_size_bytes(self) -> int:
        """Bytes of one page as vLLM reports them: of one layer, or of all layers where their sizes differ."""
        return self.layer_bytes if self.uniform_type else self.spec.page_size_bytes


def get_kv_cache_groups(
    layers: LayerSpecs, *, disable_hybrid_kv_cache_manager: bool = False
) -> tuple[KVCacheGroup, ...]:
    """The groups of a model's layers, in vLLM's order; no layers, no groups (v1/core/kv_cache_planning.py:1113).

    Raises RefusalError where vLLM cannot start: the hybrid manager is off and the layers cannot become one type.

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
    merged = merge_into_one(specs)
    if merged is not None:
        return (KVCacheGroup(tuple(layers), merged, (merged,) * len(specs)),)
    if is_uniform_type(specs):
        return (KVCacheGroup(tuple(layers), specs[0], specs, uniform_type=True),)
    return _equal_page_groups(unify_page_size(layers))


def _equal_page_groups(layers: LayerSpecs) -> tuple[KVCacheGroup, ...]:
    """Groups of several kinds of layers whose pages are equal (v1/core/kv_cache_planning.py:416).

    Every bucket of equal layers is dealt out like cards, layer i to group i modulo the number of its groups, so that a
    pipeline stage holds about its share of every group.
    """
    buckets = _buckets(layers)
    size = group_size([len(bucket) for bucket in buckets])
    return tuple(
        _group(layers, bucket[first :: cdiv(len(bucket), size)], size)
        for bucket in buckets
        for first in range(cdiv(len(bucket), size))
    )


def _group(layers: LayerSpecs, names: Sequence[str], size: int) -> KVCacheGroup:
    merged = merge_specs([layers[name] for name in names])
    if merged is None:
        raise AssertionError(f"layers {', '.join(names)} stand in one bucket and do not merge")
    return KVCacheGroup(tuple(names), merged, (merged,) * len(names), padding_layers=size - len(names))


def group_size(bucket_sizes: Sequence[int]) -> int:
    """Layers per group: the smallest bucket, or the largest one if that is less than half as large again.

    >>> group_size([52, 10]), group_size([12, 13]), group_size([2, 3])
    (10, 13, 2)
    """
    smallest, largest = min(bucket_sizes), max(bucket_sizes)
    return largest if largest < 1.5 * smallest else smallest


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
