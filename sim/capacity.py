"""What a request of a given length costs, in blocks: while it runs, at most, and on paper.

Three numbers per group, kept apart everywhere because each answers another question:

- ``resident_blocks``: held once everything behind the window is freed. What a long-running request really costs.
- ``peak_blocks``: held at most while the prompt is computed. Blocks behind the window are freed late, when the chunks
  that needed them have been processed, so a long chunk holds many blocks for a while.
- ``admission_blocks``: what vLLM charges beforehand, and prints the concurrency from. Never less than the peak, but
  for states kept at block edges: prefill may hold more of them, one per batch in flight.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from math import gcd, lcm
from typing import NamedTuple

from sim.engine_config import EngineConfig
from sim.errors import InputError, RefusalError
from sim.models import Model
from sim.planning import (
    KVCacheGroup,
    KVCachePlan,
    Memory,
    effective_engine,
    engine_groups,
    layer_specs,
    plan_kv_cache,
    stage_names,
)
from sim.planning.sizing import blocks_per_request, charged_blocks, max_block_bytes
from sim.planning.stages import split_groups
from sim.specs import ChunkedLocalAttentionSpec, CrossAttentionSpec, MambaSpec, SlidingWindowSpec, Spec, resident_blocks
from sim.units import cdiv


class RequestBlocks(NamedTuple):
    """Blocks one request takes of one group."""

    resident_blocks: int
    peak_blocks: int
    admission_blocks: int


def request_blocks(plan: KVCachePlan, engine: EngineConfig, tokens: int) -> list[RequestBlocks]:
    """The three numbers of every group for a prompt of ``tokens`` tokens, alone on the engine and without cache hits.

    ``admission_blocks`` are those of a request of this length; at max_model_len they make the printed concurrency.
    Raises InputError for a length outside 1 ... max_model_len.

    >>> from sim.models import model_from_mapping
    >>> layers = [{"kind": "full", "count": 10}, {"kind": "sliding_window", "count": 20, "window": 32}]
    >>> toy = model_from_mapping({"layers": layers, "num_kv_heads": 1, "head_size": 64, "max_model_len": 1024})
    >>> engine = EngineConfig(max_model_len=1024, max_num_batched_tokens=2048, max_num_seqs=8)
    >>> plan = plan_kv_cache(toy, engine, Memory(num_gpu_blocks_override=1000))
    >>> [blocks.resident_blocks for blocks in request_blocks(plan, engine, 112)]
    [7, 2, 2]
    >>> [blocks.peak_blocks for blocks in request_blocks(plan, engine, 112)]
    [7, 7, 7]
    """
    if not 1 <= tokens <= engine.max_model_len:
        raise InputError(f"a request has 1 to {engine.max_model_len} tokens (max_model_len), got {tokens}")
    return [_blocks_of(group.spec, engine, tokens, plan.encoder_tokens) for group in plan.groups]


def _blocks_of(spec: Spec, engine: EngineConfig, tokens: int, encoder_tokens: int) -> RequestBlocks:
    """The numbers of one group; what is charged for an encoder is a whole batch, what is held its longest input."""
    if isinstance(spec, CrossAttentionSpec) and encoder_tokens:
        held = spec.table_blocks(tokens, max_encoder_tokens=encoder_tokens)
        return RequestBlocks(held, held, charged_blocks(spec, engine, tokens))
    return RequestBlocks(
        resident_blocks=_resident(spec, engine, tokens),
        peak_blocks=peak_blocks(spec, engine, tokens),
        admission_blocks=charged_blocks(spec, engine, tokens),
    )


def _resident(spec: Spec, engine: EngineConfig, tokens: int) -> int:
    return resident_blocks(
        spec,
        tokens,
        dcp_world_size=engine.decode_context_parallel_size,
        max_encoder_tokens=engine.max_num_encoder_input_tokens,
    )


def peak_blocks(spec: Spec, engine: EngineConfig, tokens: int) -> int:
    """Most blocks of one group a prompt of ``tokens`` tokens holds while it is computed in chunks.

    Step n computes a chunk of max_num_batched_tokens. It frees what lies behind the window of the tokens *processed* so
    far, those of step n - max_concurrent_batches, and then takes the blocks of its own chunk. Chunks of 64, window 32,
    one batch at a time: before the third chunk, 128 tokens are processed and the window of the next begins at 97::

        tokens  0         64        128       192
        chunks  [    1    |    2    |    3    ]
        held                     96 [ . . . . ]   blocks 6 ... 11: six

    (vllm 0.33.0 v1/core/kv_cache_manager.py:564 and v1/core/sched/scheduler.py:1858)

    >>> from sim.specs import SlidingWindowSpec
    >>> spec = SlidingWindowSpec(16, 1, 64, "bfloat16", sliding_window=32)
    >>> for asynchronous in (False, True):
    ...     engine = EngineConfig(
    ...         max_model_len=512, max_num_batched_tokens=64, max_num_seqs=8, async_scheduling=asynchronous
    ...     )
    ...     peak_blocks(spec, engine, 192)
    6
    10
    """
    chunk, lag = engine.max_num_batched_tokens, engine.max_concurrent_batches
    if isinstance(spec, MambaSpec) and spec.mamba_cache_mode == "align":
        return _most_states(spec, lag, tokens)
    dcp, encoder = engine.decode_context_parallel_size, engine.max_num_encoder_input_tokens
    return max(
        spec.table_blocks(min(step * chunk, tokens), dcp_world_size=dcp, max_encoder_tokens=encoder)
        - spec.num_skipped_tokens(max(0, step - lag) * chunk) // spec.token_span(dcp)
        for step in _telling_steps(spec, chunk, lag, cdiv(tokens, chunk))
    )


def _most_states(spec: MambaSpec, lag: int, tokens: int) -> int:
    """States that aligned prefill may hold: what each step in flight wrote, and the one it started from.

    An upper bound; how many there are depends on where the scheduler ends the chunks.
    """
    per_step = 1 + spec.num_prefill_checkpoint_blocks
    return min(spec.table_blocks(tokens), (lag + 1) * per_step + spec.num_speculative_blocks)


def _telling_steps(spec: Spec, chunk: int, lag: int, num_steps: int) -> Iterator[int]:
    """Steps (from 1) among which the peak is: once the window is full, the blocks held repeat with a short period."""
    kept, period = _rhythm(spec)
    warm_up = lag + cdiv(kept, chunk) + period // gcd(chunk, period)
    yield from range(1, min(warm_up, num_steps) + 1)
    yield num_steps


def _rhythm(spec: Spec) -> tuple[int, int]:
    """Tokens a request keeps at most, and the tokens after which what it keeps repeats."""
    if isinstance(spec, ChunkedLocalAttentionSpec):
        return spec.attention_chunk_size, lcm(spec.attention_chunk_size, spec.block_size)
    if isinstance(spec, SlidingWindowSpec):
        return spec.sliding_window + spec.extra_retained_tokens, spec.block_size
    return 0, spec.block_size


@dataclass(frozen=True, slots=True)
class Pool:
    """Groups and the blocks they draw from: as much of a plan as the curve needs, made without vLLM's refusals."""

    groups: tuple[KVCacheGroup, ...]
    block_bytes: int
    num_blocks: int
    engine: EngineConfig

    def resident_blocks(self, tokens: int) -> int:
        """Blocks of all groups that a request of ``tokens`` computed tokens still needs."""
        return sum(_resident(group.spec, self.engine, tokens) for group in self.groups)


@dataclass(frozen=True, slots=True)
class CapacityPoint:
    """What requests of ``tokens`` tokens cost and how many fit; block counts are those of all groups together.

    ``max_concurrency`` is vLLM's formula with this length in place of max_model_len; below 1, vLLM would refuse to
    start with such a max_model_len. ``kv_bytes_per_token`` counts resident blocks, padding included. The ``all_full_``
    numbers are those with the hybrid manager off in the same memory, None where vLLM cannot turn it off. ``saving`` is
    the share of the resident bytes that the hybrid manager saves.
    """

    tokens: int
    groups: tuple[RequestBlocks, ...]
    resident_blocks: int
    peak_blocks: int
    admission_blocks: int
    kv_bytes_per_token: float
    max_concurrency: float
    all_full_blocks: int | None = None
    all_full_kv_bytes_per_token: float | None = None
    all_full_max_concurrency: float | None = None
    saving: float | None = None


@dataclass(frozen=True, slots=True)
class CapacityCurve:
    """Capacity against request length, hybrid and all-full (None where vLLM cannot turn the hybrid manager off).

    Two break-even lengths in tokens, the shortest at which the hybrid manager beats all-full attention, None if no
    length up to max_model_len does: ``break_even_tokens`` in how many requests fit by vLLM's formula, which charges
    each window for full batches in flight; ``break_even_resident_tokens`` in the bytes of a decoding request.
    """

    hybrid: Pool
    all_full: Pool | None
    points: tuple[CapacityPoint, ...]
    break_even_tokens: int | None
    break_even_resident_tokens: int | None

    def columns(self) -> dict[str, list[int | float | None]]:
        """The points as columns of a table, the three numbers of each group last (``group_0_resident_blocks`` ...)."""
        names = [field.name for field in fields(CapacityPoint) if field.name != "groups"]
        columns = {name: [getattr(point, name) for point in self.points] for name in names}
        for group in range(len(self.hybrid.groups)):
            for name in RequestBlocks._fields:
                columns[f"group_{group}_{name}"] = [getattr(point.groups[group], name) for point in self.points]
        return columns


def capacity_curve(model: Model, engine: EngineConfig, memory: Memory, lengths: Iterable[int]) -> CapacityCurve:
    """The curve of ``model`` at ``lengths`` (tokens, each 1 ... max_model_len).

    Both sides get the same bytes: those of the hybrid pool when the memory is given in blocks. Raises what
    plan_kv_cache raises for the hybrid side, and InputError for a length out of range.
    """
    engine = replace(engine, disable_hybrid_kv_cache_manager=False)
    plan = plan_kv_cache(model, engine, memory)
    hybrid = Pool(plan.groups, plan.block_bytes, plan.num_blocks, engine)
    all_full = _all_full_pool(model, engine, memory, plan)
    points = tuple(_point(tokens, request_blocks(plan, engine, tokens), hybrid, all_full, engine) for tokens in lengths)
    return CapacityCurve(
        hybrid=hybrid,
        all_full=all_full,
        points=points,
        break_even_tokens=_break_even(hybrid, all_full, engine) if all_full else None,
        break_even_resident_tokens=_break_even_resident(hybrid, all_full, engine) if all_full else None,
    )


def _all_full_pool(model: Model, engine: EngineConfig, memory: Memory, plan: KVCachePlan) -> Pool | None:
    engine = effective_engine(model, engine)
    layers = layer_specs(model, engine)
    try:
        groups = engine_groups(layers, replace(engine, disable_hybrid_kv_cache_manager=True))
    except RefusalError:
        return None
    stages = split_groups(groups, stage_names(model, engine))
    block_bytes = max_block_bytes(stages, block_outermost=engine.block_outermost)
    in_blocks = memory.num_gpu_blocks_override is not None
    available = plan.pool_bytes if in_blocks else memory.bytes_for(block_bytes)
    return Pool(groups, block_bytes, available // block_bytes, engine)


def _point(
    tokens: int, groups: Sequence[RequestBlocks], hybrid: Pool, all_full: Pool | None, engine: EngineConfig
) -> CapacityPoint:
    resident, peak, admission = (sum(column) for column in zip(*groups, strict=True))
    point = CapacityPoint(
        tokens=tokens,
        groups=tuple(groups),
        resident_blocks=resident,
        peak_blocks=peak,
        admission_blocks=admission,
        kv_bytes_per_token=resident * hybrid.block_bytes / tokens,
        max_concurrency=hybrid.num_blocks / admission,
    )
    if all_full is None:
        return point
    full_resident = all_full.resident_blocks(tokens)
    return replace(
        point,
        all_full_blocks=full_resident,
        all_full_kv_bytes_per_token=full_resident * all_full.block_bytes / tokens,
        all_full_max_concurrency=all_full.num_blocks / _admission(all_full, engine, tokens),
        saving=1 - resident * hybrid.block_bytes / (full_resident * all_full.block_bytes),
    )


def _admission(pool: Pool, engine: EngineConfig, tokens: int) -> int:
    return blocks_per_request(pool.groups, engine, tokens)


def _break_even(hybrid: Pool, all_full: Pool, engine: EngineConfig) -> int | None:
    """Neither side's charge ever falls with the length, so hybrid overtakes where all-full takes one more block."""
    for tokens in range(1, engine.max_model_len + 1, min(group.block_size for group in all_full.groups)):
        hybrid_blocks, full_blocks = _admission(hybrid, engine, tokens), _admission(all_full, engine, tokens)
        if hybrid.num_blocks * full_blocks > all_full.num_blocks * hybrid_blocks:
            return tokens
    return None


def _break_even_resident(hybrid: Pool, all_full: Pool, engine: EngineConfig) -> int | None:
    """Resident blocks of a window go up and down by one as it slides, so every length is looked at."""
    kept = [group.window or group.chunk_size or 0 for group in hybrid.groups]
    for tokens in range(min(filter(None, kept), default=engine.max_model_len), engine.max_model_len + 1):
        hybrid_bytes = hybrid.resident_blocks(tokens) * hybrid.block_bytes
        if hybrid_bytes < all_full.resident_blocks(tokens) * all_full.block_bytes:
            return tokens
    return None
