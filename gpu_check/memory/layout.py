"""Where every byte of the KV cache lies: one allocation, in which all groups are laid over each other.

A layer's cache has the logical axes B (blocks), H (KV heads), N (tokens, or states), C (content in bytes); L are the
layers of one spec in one group. A layout names the five from the outermost to the innermost, and each group starts at
byte 0. With L outermost, n groups of m layers share m regions::

    region     |      0 [ block 0 | block 1 | ... ]      |      1 [ block 0 | block 1 | ... ]      | ...
    group 0    |  layer 0                                |  layer 1                                |
    group 1    |  layer 0                                |  layer 1                                |

and with B outermost a block holds the pages of all layers of whichever group owns it, side by side.
Rules: vllm 0.33.0 v1/core/kv_cache_planning.py:642 and v1/kv_cache_interface.py:360-483.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import NamedTuple

from sim.planning import KVCacheGroup
from sim.specs import AttentionSpec, MambaSpec, Spec


class Axes(NamedTuple):
    """One number per axis of a layer's cache."""

    blocks: int
    heads: int
    states: int
    content: int


@dataclass(frozen=True, slots=True)
class LayerPlace:
    """One layer's cache in the allocation.

    ``offset`` is where its block 0 starts, in bytes; ``shape`` counts blocks, heads, states and bytes of content;
    ``strides`` are the bytes from one to the next of each.
    """

    name: str
    group: int
    spec: Spec
    offset: int
    shape: Axes
    strides: Axes

    def address(self, block: int, head: int = 0, state: int = 0, content: int = 0) -> int:
        """The byte of the allocation at which this one lies."""
        steps = zip((block, head, state, content), self.strides, strict=True)
        return self.offset + sum(index * stride for index, stride in steps)

    @property
    def page_bytes(self) -> int:
        """Bytes of one block that the layer fills."""
        return prod(self.shape[1:])

    @property
    def end(self) -> int:
        """The byte behind the last one of the layer's last block."""
        return self.address(*(size - 1 for size in self.shape)) + 1


def layer_places(
    groups: Sequence[KVCacheGroup], num_blocks: int, layout: str, block_bytes: int
) -> tuple[LayerPlace, ...]:
    """The place of every layer, group by group, in an allocation of ``num_blocks`` blocks of ``block_bytes``.

    Two groups of one and two layers share two regions of four blocks::

        bytes    0     512   1024  1536 | 2048  ...
        region   0                      | 1

    >>> from sim.specs import FullAttentionSpec, SlidingWindowSpec
    >>> full = FullAttentionSpec(4, 1, 32, "bfloat16")
    >>> window = SlidingWindowSpec(4, 1, 32, "bfloat16", sliding_window=8)
    >>> groups = [KVCacheGroup(("f",), full, (full,)), KVCacheGroup(("w", "x"), window, (window,) * 2)]
    >>> places = layer_places(groups, 4, "LBNHC", 1024)
    >>> [(place.name, place.offset, place.strides.blocks) for place in places]
    [('f', 0, 512), ('w', 0, 512), ('x', 2048, 512)]
    >>> [(place.name, place.offset, place.strides.blocks) for place in layer_places(groups, 4, "BLNHC", 1024)]
    [('f', 0, 1024), ('w', 0, 1024), ('x', 512, 1024)]
    """
    return tuple(
        place for number, group in enumerate(groups) for place in _group(number, group, num_blocks, layout, block_bytes)
    )


def _group(number: int, group: KVCacheGroup, num_blocks: int, layout: str, block_bytes: int) -> list[LayerPlace]:
    """The group's layers, those of one spec next to each other, in order of the spec's first appearance."""
    by_spec: dict[Spec, list[str]] = {}
    for name, spec in zip(group.layer_names, group.layer_specs, strict=True):
        by_spec.setdefault(spec, []).append(name)
    places, offset = [], 0
    for spec, names in by_spec.items():
        shape = Axes(num_blocks, *_page_shape(spec))
        fixed = block_bytes if layout.startswith("B") else _padded_stride(spec)
        layer_stride, strides = _strides(spec, len(names), shape, layout, fixed)
        places += [
            LayerPlace(name, number, spec, offset + position * layer_stride, shape, strides)
            for position, name in enumerate(names)
        ]
        offset += len(names) * (spec.page_size_bytes if layout.startswith("B") else layer_stride)
    return places


def _page_shape(spec: Spec) -> tuple[int, int, int]:
    """KV heads, states per block and bytes of one state; a Mamba layer's page is one state of one head."""
    if isinstance(spec, MambaSpec):
        return 1, 1, spec.unpadded_page_size_bytes
    assert isinstance(spec, AttentionSpec)
    return spec.num_kv_heads, int(spec.block_size // spec.tokens_per_state), spec.content_bytes


def _padded_stride(spec: Spec) -> int | None:
    """The distance between blocks where kernels ask for more than the page; None where the page decides."""
    return spec.stride_bytes if spec.stride_bytes != spec.page_size_bytes else None


def _strides(spec: Spec, num_layers: int, shape: Axes, layout: str, block_stride: int | None) -> tuple[int, Axes]:
    """Bytes between layers, and between the entries of each axis of one: packed from the innermost axis outwards.

    A padded page takes its full size where the first of L and B follows what lies inside a page.
    """
    sizes = dict(zip("LBHNC", (num_layers, *shape), strict=True))
    outer_of_page = max("LB", key=layout.index)
    strides: dict[str, int] = {}
    step = 1
    for axis in reversed(layout):
        if axis == outer_of_page:
            step = max(step, spec.page_size_padded or 0)
        strides[axis] = block_stride if axis == "B" and block_stride is not None else step
        step = strides[axis] * sizes[axis]
    return strides["L"], Axes(*(strides[axis] for axis in "BHNC"))
