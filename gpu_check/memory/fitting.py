"""How many requests of one length really fit: their blocks are taken and written until there are none left."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from gpu_check.claims import Claim, equal, not_tested
from gpu_check.memory.buffers import Buffers
from gpu_check.memory.layout import Axes, LayerPlace
from gpu_check.rules import first_needed
from sim.capacity import request_blocks
from sim.engine_config import EngineConfig
from sim.planning import KVCacheGroup, KVCachePlan
from sim.specs import MambaSpec, Spec

_COUNTED = (
    "full_attention",
    "mla_attention",
    "sliding_window",
    "sliding_window_mla",
    "chunked_local_attention",
    "mamba",
)
_CODES = 127
_THIN = 16


def read_blocks(spec: Spec, tokens: int) -> list[int]:
    """The blocks of a request of ``tokens`` computed tokens that its next token reads or is written to.

    By the mask of its attention, and as far as there are any. Window 32, blocks of 16, 112 tokens: token 112 reads
    81 ... 111 and itself, for which there is no block yet::

        blocks  |  0  |  1  |  2  |  3  |  4  |     5     |     6     |
        read                                  [  81 ... 111           ]

    >>> from sim.specs import SlidingWindowSpec
    >>> read_blocks(SlidingWindowSpec(16, 8, 64, "bfloat16", sliding_window=32), 112)
    [5, 6]
    """
    if isinstance(spec, MambaSpec):  # the state after the last token, and a place for one after each draft
        return list(range(1 + spec.num_speculative_blocks))
    first = first_needed(spec, tokens)
    there = -(-tokens // spec.block_size)
    return sorted({position // spec.block_size for position in range(first, tokens + 1)} & set(range(there)))


def requests_that_fit(buffers: Buffers, plan: KVCachePlan, engine: EngineConfig, tokens: int) -> Claim:
    """Take and write blocks request by request until one finds too few, then look whether all still hold their own.

    Predicted: the blocks that the simulator says a request of ``tokens`` tokens keeps, into the pool without its null
    block. Measured: the requests whose bytes are all their own. Where ``buffers`` hold fewer blocks than the plan has,
    blocks of a few bytes stand for the real ones.
    """
    num_blocks = plan.num_blocks
    claim = f"requests of {tokens:,} tokens that fit into {num_blocks:,} blocks, one more not"
    kept = sum(blocks.resident_blocks for blocks in request_blocks(plan, engine, tokens))
    predicted = (num_blocks - 1) // kept
    specs = [group.spec for group in plan.groups]
    odd = sorted({spec.kind for spec in specs if spec.kind not in _COUNTED})
    if odd or engine.decode_context_parallel_size > 1:
        why = f"what {', '.join(odd) or 'context-parallel ranks'} keep is not derived from an attention mask here"
        return not_tested("memory", claim, why, predicted=predicted)
    needs = [len(read_blocks(spec, tokens)) for spec in specs]
    tables = _taken(num_blocks, needs)
    note = ""
    if any(place.shape.blocks < num_blocks for place in buffers.places):
        buffers, note = _thin(plan.groups, num_blocks, buffers.raw.device), f"in blocks of {_THIN} bytes"
    intact = _intact(buffers, plan.groups, tables)
    if intact != len(tables):
        note = f"{len(tables) - intact} requests were overwritten; {note}"
    return equal("memory", claim, predicted, intact, note=note)


def _thin(groups: Sequence[KVCacheGroup], num_blocks: int, device: Any) -> Buffers:
    """A pool of as many blocks of a few bytes, one layer to a group."""
    shape, strides = Axes(num_blocks, 1, 1, _THIN), Axes(_THIN, _THIN, _THIN, 1)
    places = [LayerPlace(str(number), number, group.spec, 0, shape, strides) for number, group in enumerate(groups)]
    return Buffers(places, num_blocks * _THIN, device)


def _taken(num_blocks: int, needs: Sequence[int]) -> list[list[list[int]]]:
    """Block ids per request and group, block 0 left out, for as many requests as find all they need."""
    free = list(range(num_blocks - 1, 0, -1))
    tables = []
    while len(free) >= sum(needs):
        tables.append([[free.pop() for _ in range(count)] for count in needs])
    return tables


def _intact(buffers: Buffers, groups: Sequence[KVCacheGroup], tables: list[list[list[int]]]) -> int:
    """Write each request's number into all pages of its blocks; the requests that read it back everywhere."""
    device = buffers.raw.device
    buffers.raw.zero_()
    whole = torch.ones(len(tables), dtype=torch.bool)
    for reading in (False, True):
        for group in range(len(groups)):
            owner = [(block, request) for request, table in enumerate(tables) for block in table[group]]
            if not owner:
                continue
            blocks, requests = (torch.tensor(column) for column in zip(*owner, strict=True))
            marks = (requests % _CODES + 1).to(torch.int8)[:, None, None, None].to(device)
            for place in (place for place in buffers.places if place.group == group):
                pages = buffers.pages(place)
                for part in buffers.ranges(len(owner), place):
                    there, mark = blocks[part].to(device), marks[part]
                    if not reading:
                        pages.index_copy_(0, there, mark.expand(-1, *pages.shape[1:]))
                        continue
                    same = (pages.index_select(0, there) == mark).flatten(1).all(1).cpu()
                    whole[requests[part][~same]] = False
    return int(whole.sum())
