"""The scenario's groups with fewer and smaller layers, so that its steps can be replayed anywhere.

Block ids, block sizes and groups stay; of each group's layers two stay, of different specs where it has them, with a
few heads each. Pages are padded to one size, as vLLM pads states.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from gpu_check.memory.layout import LayerPlace, layer_places
from sim.planning import KVCacheGroup
from sim.planning.sizing import block_bytes_of
from sim.specs import AttentionSpec, FullAttentionSpec, MambaSpec, Spec

CONV_WIDTH = 3
"""Inputs that a convolution looks back."""
_REPLAYED = (
    *("full_attention", "sink_full_attention", "mla_attention", "sliding_window", "sliding_window_mla"),
    *("chunked_local_attention", "mamba"),
)


@dataclass(frozen=True, slots=True)
class Size:
    """Layers of a group that are replayed, KV heads, query heads of each, elements of a head (and of a state)."""

    layers: int = 2
    kv_heads: int = 2
    queries: int = 2
    head_size: int = 8

    def described(self) -> str:
        """The size in words."""
        return f"{self.layers} layers of each group, {self.kv_heads} KV heads of {self.head_size}"


@dataclass(frozen=True, slots=True)
class SmallLayer:
    """A layer that is replayed: where its small cache lies, and what its attention sees.

    ``window`` and ``chunk`` in tokens, 0 for none. ``latent``: one row per token that is key and value in one.
    """

    number: int
    place: LayerPlace
    window: int
    chunk: int
    latent: bool

    @property
    def group(self) -> int:
        """The number of its group."""
        return self.place.group

    @property
    def block_size(self) -> int:
        """Tokens per block."""
        return self.place.spec.block_size

    @property
    def is_state(self) -> bool:
        """Whether it keeps a state instead of keys and values."""
        return isinstance(self.place.spec, MambaSpec)


@dataclass(frozen=True, slots=True)
class SmallCache:
    """All layers that are replayed, and the bytes of their pool."""

    layers: tuple[SmallLayer, ...]
    num_bytes: int
    size: Size


def not_replayed(groups: Sequence[KVCacheGroup]) -> str | None:
    """Why these groups cannot be replayed: what they hold is no function of the tokens alone; None when they can."""
    specs = [spec for group in groups for spec in group.layer_specs]
    odd: set[str] = {spec.kind for spec in specs if spec.kind not in _REPLAYED}
    if any(spec.tokens_per_compressed_state != 1 for spec in specs):
        odd.add("compressed states")
    if any(spec.prefix_replay_tokens for spec in specs):
        odd.add("windows that are replayed")
    return f"{', '.join(sorted(odd))}: not replayed here" if odd else None


def small_cache(groups: Sequence[KVCacheGroup], num_blocks: int, layout: str, dtype: str, size: Size) -> SmallCache:
    """The groups with ``size`` layers in ``layout``, keys and values in ``dtype``, and their places in one pool.

    A layout that cannot pad pages of several heads gets one head.
    """
    chosen = [_chosen(group, size.layers) for group in groups]
    small = [[_small(spec, dtype, size) for _, spec in layers] for layers in chosen]
    widest = max(spec.page_size_bytes for specs in small for spec in specs)
    uniform = all(spec.page_size_bytes == widest for specs in small for spec in specs)
    if not uniform and size.kv_heads > 1 and set(layout[:2]) != {"L", "B"}:
        return small_cache(groups, num_blocks, layout, dtype, replace(size, kv_heads=1))
    padded = [[spec if uniform else replace(spec, page_size_padded=widest) for spec in specs] for specs in small]
    made = [
        KVCacheGroup(tuple(name for name, _ in layers), specs[0], tuple(specs), uniform_type=True)
        for layers, specs in zip(chosen, padded, strict=True)
    ]
    block_bytes = block_bytes_of(made, block_outermost=layout.startswith("B"))
    places = layer_places(made, num_blocks, layout, block_bytes)
    originals = {name: spec for layers in chosen for name, spec in layers}
    layers = tuple(_layer(number, place, originals[place.name]) for number, place in enumerate(places))
    return SmallCache(layers, num_blocks * block_bytes, size)


def _chosen(group: KVCacheGroup, count: int) -> list[tuple[str, Spec]]:
    """Names and specs of the layers that stay: those of the first different specs, then the first others."""
    layers = list(zip(group.layer_names, group.layer_specs, strict=True))
    first: dict[Spec, str] = {}
    for name, spec in layers:
        first.setdefault(spec, name)
    order = [*first.values(), *(name for name, _ in layers if name not in set(first.values()))]
    kept = set(order[:count])
    return [(name, spec) for name, spec in layers if name in kept]


def _small(spec: Spec, dtype: str, size: Size) -> Spec:
    """The page of a small layer: two tensors of a state, a latent row, or keys and values."""
    if isinstance(spec, MambaSpec):
        shapes = ((CONV_WIDTH, size.head_size), (2 * size.head_size,))
        return MambaSpec(spec.block_size, shapes=shapes, dtypes=(dtype, "float32"))
    assert isinstance(spec, AttentionSpec)
    if spec.head_size_v == 0:
        return FullAttentionSpec(spec.block_size, 1, 2 * size.head_size, dtype, 0)
    return FullAttentionSpec(spec.block_size, size.kv_heads, size.head_size, dtype)


def _layer(number: int, place: LayerPlace, original: Spec) -> SmallLayer:
    window = int(getattr(original, "sliding_window", None) or 0)
    chunk = int(getattr(original, "attention_chunk_size", None) or 0)
    latent = getattr(original, "head_size_v", None) == 0
    return SmallLayer(number, place, window, chunk, latent)
