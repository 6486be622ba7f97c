"""What the allocation really does: which bytes each layer fills, whose they are, and where single elements lie."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

from gpu_check.claims import Claim, equal
from gpu_check.memory.buffers import COPIED_BYTES, Buffers
from gpu_check.memory.layout import LayerPlace
from sim.planning import KVCacheGroup
from sim.specs import AttentionSpec, MambaSpec
from sim.units import dtype_bytes

_CODES = 127
"""Different marks that a byte can hold, 0 meaning none."""
_SAMPLES = 5


def filled_bytes(buffers: Buffers, groups: tuple[KVCacheGroup, ...]) -> Claim:
    """Fill all layers of each group in turn and count the bytes that are no longer zero.

    A layer that ran over its neighbour, or past its pages, would leave fewer or more of them.
    """
    predicted = measured = 0
    wrong = []
    for number, group in enumerate(groups):
        mine = [place for place in buffers.places if place.group == number]
        buffers.raw.zero_()
        for place in mine:
            buffers.pages(place).fill_(1)
        expected = sum(spec.unpadded_page_size_bytes for spec in group.layer_specs) * _num_blocks(mine)
        found = sum(int(torch.count_nonzero(part)) for part in buffers.raw.split(COPIED_BYTES))
        predicted, measured = predicted + expected, measured + found
        if found != expected:
            wrong.append(f"group {number} should fill {expected:,} and fills {found:,}")
    claim = f"content of all layers of {len(groups)} groups"
    return equal("memory", claim, predicted, measured, unit="bytes", note="; ".join(wrong))


def foreign_bytes(buffers: Buffers) -> Claim:
    """Write every block's number through one group after the other; no view may show the number of another block.

    Numbers are written digit by digit, a pass for each.
    """
    blocks = max((place.shape.blocks for place in buffers.places), default=0)
    foreign = 0
    place_value = 1
    while place_value <= blocks:
        digits = (torch.arange(blocks, device=buffers.raw.device) // place_value % _CODES + 1).to(torch.int8)
        buffers.raw.zero_()
        for writing in (True, False):
            for place in buffers.places:
                for part in buffers.ranges(place.shape.blocks, place):
                    pages, mark = buffers.pages(place)[part], digits[part, None, None, None]
                    other = pages != mark
                    foreign += int((other & (pages != 0) if writing else other).sum())
                    if writing:
                        pages.copy_(mark.expand(pages.shape))
        place_value *= _CODES
    return equal("memory", "bytes of a block that another block reaches", 0, foreign, unit="bytes")


def shared_regions(buffers: Buffers, groups: tuple[KVCacheGroup, ...]) -> Claim:
    """Where pages are all of one size, layer i of every group begins at the same byte: as many places as layers."""
    begins = {buffers.address(buffers.pages(place)) for place in buffers.places}
    layers = max(len(group.layer_names) for group in groups)
    claim = f"places at which the block 0 of {len(buffers.places)} layers lies"
    return equal("memory", claim, layers, len(begins))


def strides(buffers: Buffers) -> Claim:
    """Compare the strides of every layer's view in its own dtype, in bytes, with the plan's."""
    agreeing = 0
    for place in buffers.places:
        view = buffers.cache(place)
        *outer, last = view.stride()
        agreeing += [*(stride * view.element_size() for stride in outer), last] == list(place.strides)
    return equal("memory", "views with vLLM's strides", len(buffers.places), agreeing)


def addresses(buffers: Buffers) -> Claim:
    """Compare where keys, values, latent rows and states lie with what the page's order says, at samples."""
    asked = agreeing = 0
    for place in buffers.places:
        for view, predicted in _elements(buffers, place):
            asked += 1
            agreeing += buffers.address(view) == predicted
    return equal("memory", "keys, values and states at the byte of their slot", asked, agreeing)


def _elements(buffers: Buffers, place: LayerPlace) -> Iterator[tuple[Any, int]]:
    """Single elements of a layer's views, and the byte at which each must lie."""
    spec = place.spec
    for block in _spread(place.shape.blocks):
        if isinstance(spec, MambaSpec):
            start = 0
            for state, dtype in zip(buffers.states(place), spec.dtypes, strict=True):
                last = state[block].flatten()[-1]
                end = start + state[block].numel() * dtype_bytes(dtype)
                yield state[block], place.address(block, content=start)
                yield last, place.address(block, content=end - dtype_bytes(dtype))
                start = end
            continue
        assert isinstance(spec, AttentionSpec)
        keys, values = buffers.keys_values(place)
        for token in _spread(place.shape.states):
            for head in _spread(place.shape.heads):
                yield keys[block, token, head], place.address(block, head, token)
                if values.shape[-1]:
                    behind = keys.shape[-1] * keys.element_size()
                    yield values[block, token, head], place.address(block, head, token, behind)


def _spread(size: int) -> list[int]:
    """A few indices of ``size``, the first and the last among them.

    >>> _spread(3), _spread(101)
    ([0, 1, 2], [0, 25, 50, 75, 100])
    """
    if size <= _SAMPLES:
        return list(range(size))
    return [position * (size - 1) // (_SAMPLES - 1) for position in range(_SAMPLES)]


def _num_blocks(places: list[LayerPlace]) -> int:
    return places[0].shape.blocks if places else 0
