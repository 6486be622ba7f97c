"""How many blocks a GPU's KV cache memory holds, and vLLM's refusal when they are too few for one request."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from sim.engine_config import EngineConfig
from sim.errors import InputError, RefusalError
from sim.planning.group import KVCacheGroup
from sim.specs import SlidingWindowSpec, Spec
from sim.units import GIB, cdiv, format_gib

_MOST_BYTES = 1 << 60
"""An exbibyte per GPU; more is a slip of the keyboard."""


@dataclass(frozen=True, slots=True)
class Memory:
    """What the KV cache may use on each GPU; exactly one of the three is set, otherwise InputError.

    A number of blocks, bytes, or the GiB that vLLM prints at start as available KV cache memory.
    """

    num_gpu_blocks_override: int | None = None
    kv_cache_memory_bytes: int | None = None
    available_kv_cache_memory_gib: float | None = None

    def __post_init__(self) -> None:
        fields = ("num_gpu_blocks_override", "kv_cache_memory_bytes", "available_kv_cache_memory_gib")
        given = {name: getattr(self, name) for name in fields if getattr(self, name) is not None}
        if len(given) != 1:
            got = " and ".join(given) if given else "none"
            raise InputError(f"exactly one of {', '.join(fields)} must be given, got {got}", where="memory")
        ((name, value),) = given.items()
        number = int | float if name == "available_kv_cache_memory_gib" else int
        largest = _MOST_BYTES // GIB if name == "available_kv_cache_memory_gib" else _MOST_BYTES
        if isinstance(value, bool) or not isinstance(value, number) or not 0 < value <= largest:
            kind = "a number" if name == "available_kv_cache_memory_gib" else "an integer"
            raise InputError(f"must be {kind} above 0 and at most {largest}, got {value!r}", where=f"memory.{name}")

    def bytes_for(self, block_bytes: int) -> int:
        """Bytes for the pool when one block takes ``block_bytes``."""
        if self.num_gpu_blocks_override is not None:
            return self.num_gpu_blocks_override * block_bytes
        if self.kv_cache_memory_bytes is not None:
            return self.kv_cache_memory_bytes
        assert self.available_kv_cache_memory_gib is not None
        return int(self.available_kv_cache_memory_gib * GIB)

    def num_blocks(self, block_bytes: int) -> int:
        """Blocks of ``block_bytes`` that fit."""
        return self.bytes_for(block_bytes) // block_bytes


class KVCacheMemoryError(RefusalError):
    """vLLM's refusal of a pool too small for one request of max_model_len tokens.

    ``needed_bytes`` and ``available_bytes`` leave out the null block, as vLLM does; ``estimated_max_len`` is the
    longest request that would fit, in tokens, 0 if none does.
    """

    def __init__(self, needed_bytes: int, available_bytes: int, estimated_max_len: int, max_model_len: int) -> None:
        self.needed_bytes = needed_bytes
        self.available_bytes = available_bytes
        self.estimated_max_len = estimated_max_len
        fits = f"; the longest that fits is {estimated_max_len} tokens" if estimated_max_len > 0 else ""
        super().__init__(
            f"one request of max_model_len ({max_model_len}) tokens needs {format_gib(needed_bytes)} GiB of KV cache,"
            f" {format_gib(available_bytes)} GiB are available{fits}: vLLM refuses to start; give more memory or lower"
            " max_model_len",
            where="memory",
        )


def block_bytes_of(groups: Sequence[KVCacheGroup], *, block_outermost: bool = False) -> int:
    """Bytes of one block: what the widest group's layers take (vllm 0.33.0 v1/core/kv_cache_planning.py:574).

    Where every layer has a region of its own, each page is rounded up to the layer's alignment; where a block holds all
    layers side by side, the block is, to all alignments at once.
    """
    if not block_outermost:
        return max(sum(spec.stride_bytes for spec in group.layer_specs) for group in groups)
    alignment = math.lcm(*(spec.stride_alignment_bytes for group in groups for spec in group.layer_specs))
    return cdiv(max(group.layer_bytes for group in groups), alignment) * alignment


def max_block_bytes(stages: Iterable[Sequence[KVCacheGroup]], *, block_outermost: bool = False) -> int:
    """Bytes of one block on the pipeline stage where they are most; with equal memory it has the fewest blocks."""
    return max(block_bytes_of(groups, block_outermost=block_outermost) for groups in stages)


def charged_blocks(spec: Spec, engine: EngineConfig, tokens: int) -> int:
    """Blocks of one group that vLLM charges one request of ``tokens`` tokens for.

    Raises RefusalError for windows dealt out to context-parallel ranks (vllm 0.33.0 v1/kv_cache_interface.py:947).
    """
    if engine.decode_context_parallel_size > 1 and spec.dcp_sharded and isinstance(spec, SlidingWindowSpec):
        raise RefusalError(
            "a sliding window cannot be dealt out to context-parallel ranks: vLLM refuses to start",
            where="engine.decode_context_parallel_size",
        )
    return spec.max_admission_blocks(
        engine.max_in_flight_tokens,
        tokens,
        dcp_world_size=engine.decode_context_parallel_size,
        max_encoder_tokens=engine.max_num_encoder_input_tokens,
    )


def blocks_per_request(groups: Iterable[KVCacheGroup], engine: EngineConfig, tokens: int) -> int:
    """Blocks one request of ``tokens`` tokens is charged for, over all groups."""
    return sum(charged_blocks(group.spec, engine, tokens) for group in groups)


def num_blocks_or_refusal(stages: Sequence[Sequence[KVCacheGroup]], engine: EngineConfig, memory: Memory) -> int:
    """Blocks of the pool: those of the pipeline stage that has room for the fewest.

    ``stages`` holds each stage's share of the groups. Raises KVCacheMemoryError for the first stage whose usable
    blocks (one is the null block) do not hold one request of max_model_len.

    vllm 0.33.0 v1/core/kv_cache_planning.py:1461.
    """
    for groups in stages:
        _check_stage(groups, engine, memory)
    return min(memory.num_blocks(_block_bytes(groups, engine)) for groups in stages)


def _block_bytes(groups: Sequence[KVCacheGroup], engine: EngineConfig) -> int:
    return block_bytes_of(groups, block_outermost=engine.block_outermost)


def _check_stage(groups: Sequence[KVCacheGroup], engine: EngineConfig, memory: Memory) -> None:
    block_bytes = _block_bytes(groups, engine)
    usable = memory.bytes_for(block_bytes) - block_bytes
    if usable <= 0:
        raise RefusalError(
            f"no memory for KV cache blocks: one block takes {block_bytes} bytes and the first is the null block: vLLM"
            " refuses to start; give more memory",
            where="memory",
        )

    def needed(length: int) -> int:
        return block_bytes * blocks_per_request(groups, engine, length)

    if needed(engine.max_model_len) > usable:
        longest = longest_that_fits(groups, engine, usable)
        raise KVCacheMemoryError(needed(engine.max_model_len), usable, longest, engine.max_model_len)


def longest_that_fits(groups: Sequence[KVCacheGroup], engine: EngineConfig, usable_bytes: int) -> int:
    """Tokens of the longest request that ``usable_bytes`` hold, at most max_model_len, 0 if not even one token fits.

    The same halving as in vLLM (vllm 0.33.0 v1/core/kv_cache_planning.py:1288).
    """
    block_bytes = _block_bytes(groups, engine)
    longest, low, high = 0, 1, engine.max_model_len
    while low <= high:
        middle = (low + high) // 2
        if block_bytes * blocks_per_request(groups, engine, middle) <= usable_bytes:
            longest, low = middle, middle + 1
        else:
            high = middle - 1
    return longest
