"""The plan: everything about the KV cache that is settled before the first request arrives."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from sim.engine_config import EngineConfig
from sim.errors import InputError, RefusalError
from sim.models import LayerShape, Model
from sim.planning.grouping import KVCacheGroup, get_kv_cache_groups
from sim.planning.sizing import Memory, blocks_per_request, max_block_bytes, num_blocks_or_refusal
from sim.planning.stages import split_groups
from sim.planning.unify import LayerSpecs
from sim.specs import FullAttentionSpec, SlidingWindowSpec, Spec


@dataclass(frozen=True, slots=True)
class KVCachePlan:
    """Groups, blocks and block sizes of one engine.

    ``block_bytes`` are those of a whole block on the fullest pipeline stage; ``num_blocks`` counts the null block too;
    ``kv_cache_size_tokens`` and ``max_concurrency`` are the two numbers vLLM prints at start. ``spec_groups`` are the
    ids of groups with one spec, which are looked up together, full attention first. ``admission_blocks`` are, per
    group, the most blocks a request is charged for.
    """

    groups: tuple[KVCacheGroup, ...]
    block_bytes: int
    num_blocks: int
    scheduler_block_size: int
    hash_block_size: int
    kv_cache_size_tokens: int
    max_concurrency: float
    max_model_len: int
    max_in_flight_tokens: int
    spec_groups: tuple[tuple[int, ...], ...]
    admission_blocks: tuple[int, ...]

    @property
    def pool_bytes(self) -> int:
        """Bytes of the whole pool on the fullest stage."""
        return self.num_blocks * self.block_bytes

    @property
    def padding_layers(self) -> int:
        """Layers' worth of every block that no layer uses, over all groups."""
        return sum(group.padding_layers for group in self.groups)


def plan_kv_cache(model: Model, engine: EngineConfig, memory: Memory) -> KVCachePlan:
    """The plan of ``model`` under ``engine`` in ``memory`` (per GPU), as vLLM 0.33.0 makes it.

    Raises RefusalError for what vLLM refuses: max_model_len beyond the model's, heads that tensor parallelism does not
    divide, a KV cache dtype that contradicts the model's, a retention interval that is no multiple of the scheduler
    block size or has no window to act on; and KVCacheMemoryError, with what is needed, what is there and the
    longest request that would fit.

    >>> from sim.models import load_model
    >>> engine = EngineConfig(max_model_len=131072, max_num_batched_tokens=8192, max_num_seqs=1024)
    >>> plan = plan_kv_cache(load_model("gemma-3-27b"), engine, Memory(available_kv_cache_memory_gib=40))
    >>> plan.num_blocks, plan.kv_cache_size_tokens, round(plan.max_concurrency, 2)
    (32768, 291658, 2.23)
    """
    _check_model(model, engine)
    return plan_layers(layer_specs(model, engine), engine, memory)


def layer_specs(model: Model, engine: EngineConfig) -> LayerSpecs:
    """The spec of every layer on one tensor-parallel rank, by name (``layers.0`` ...), in construction order.

    Below one KV head per rank the heads are replicated, so pages stop shrinking (vllm 0.33.0 config/model.py:1663).
    """
    return {f"layers.{index}": _layer_spec(layer, model, engine) for index, layer in enumerate(model.layers)}


def _layer_spec(layer: LayerShape, model: Model, engine: EngineConfig) -> Spec:
    heads = max(1, layer.num_kv_heads // engine.tensor_parallel_size)
    dtype = model.dtype if engine.kv_cache_dtype == "auto" else engine.kv_cache_dtype
    if layer.window is None:
        return FullAttentionSpec(engine.block_size, heads, layer.head_size, dtype, layer.head_size_v)
    return SlidingWindowSpec(
        engine.block_size, heads, layer.head_size, dtype, layer.head_size_v, sliding_window=layer.window
    )


def plan_layers(layers: LayerSpecs, engine: EngineConfig, memory: Memory) -> KVCachePlan:
    """The plan of layers whose specs are given, one rank's worth, in construction order; at least one layer.

    Groups are made of the whole model, then each pipeline stage gets its layers of every group.
    """
    groups = get_kv_cache_groups(layers, disable_hybrid_kv_cache_manager=engine.disable_hybrid_kv_cache_manager)
    stages = split_groups(groups, tuple(layers), engine.pipeline_parallel_size)
    num_blocks = num_blocks_or_refusal(stages, engine, memory)
    scheduler_block_size, hash_block_size = resolve_block_sizes(
        groups, enable_prefix_caching=engine.enable_prefix_caching
    )
    _check_retention(groups, engine.prefix_cache_retention_interval, scheduler_block_size)
    in_flight = engine.max_in_flight_tokens
    concurrency = num_blocks / blocks_per_request(groups, in_flight, engine.max_model_len)
    return KVCachePlan(
        groups=groups,
        block_bytes=max_block_bytes(stages),
        num_blocks=num_blocks,
        scheduler_block_size=scheduler_block_size,
        hash_block_size=hash_block_size,
        kv_cache_size_tokens=int(concurrency * engine.max_model_len),
        max_concurrency=concurrency,
        max_model_len=engine.max_model_len,
        max_in_flight_tokens=in_flight,
        spec_groups=joint_groups(groups),
        admission_blocks=tuple(group.spec.max_admission_blocks(in_flight, engine.max_model_len) for group in groups),
    )


def resolve_block_sizes(groups: Sequence[KVCacheGroup], *, enable_prefix_caching: bool = True) -> tuple[int, int]:
    """``(scheduler_block_size, hash_block_size)`` in tokens (vllm 0.33.0 v1/core/kv_cache_utils.py:816).

    Hits end at a multiple of the first, so that they end at a block's edge in every group; prefixes are hashed in
    units of the second, of which every group's block holds a whole number. Without prefix caching both are the first.
    """
    sizes = [group.block_size for group in groups]
    scheduler_block_size = math.lcm(*sizes)
    return scheduler_block_size, math.gcd(*sizes) if enable_prefix_caching else scheduler_block_size


def joint_groups(groups: Sequence[KVCacheGroup]) -> tuple[tuple[int, ...], ...]:
    """Ids of the groups that share one spec, and so are looked up together, full attention first.

    Apart from that in order of first appearance (vllm 0.33.0 v1/core/kv_cache_coordinator.py:718).
    """
    by_spec: dict[Spec, list[int]] = {}
    for group_id, group in enumerate(groups):
        by_spec.setdefault(group.spec, []).append(group_id)
    full_first = sorted(by_spec, key=lambda spec: spec.kind != "full_attention")
    return tuple(tuple(by_spec[spec]) for spec in full_first)


def _check_model(model: Model, engine: EngineConfig) -> None:
    if engine.max_model_len > model.max_model_len:
        raise RefusalError(
            f"{engine.max_model_len} is more than the {model.max_model_len} tokens {model.name} was made for: vLLM"
            " refuses to start",
            where="engine.max_model_len",
        )
    if engine.pipeline_parallel_size > model.num_hidden_layers:
        raise InputError(
            f"{engine.pipeline_parallel_size} stages for {model.num_hidden_layers} layers leave a stage empty",
            where="engine.pipeline_parallel_size",
        )
    if engine.kv_cache_dtype in ("float16", "bfloat16") and engine.kv_cache_dtype != model.dtype:
        raise RefusalError(
            f"{engine.kv_cache_dtype} contradicts the model's dtype {model.dtype}: vLLM refuses to start; use auto",
            where="engine.kv_cache_dtype",
        )
    _check_tensor_parallel(model, engine.tensor_parallel_size)


def _check_tensor_parallel(model: Model, ranks: int) -> None:
    """Ranks share the attention heads evenly; KV heads evenly too, or all ranks replicate them equally often.

    vllm 0.33.0 config/model.py:1557 and, for KV heads, model_executor/layers/linear.py.
    """
    heads = model.num_attention_heads
    if heads % ranks and model.origin.get("num_attention_heads") != "estimated":
        raise RefusalError(
            f"{ranks} does not divide the {heads} attention heads of {model.name}: vLLM refuses to start",
            where="engine.tensor_parallel_size",
        )
    for kv_heads in sorted({layer.num_kv_heads for layer in model.layers}):
        if kv_heads % ranks and ranks % kv_heads:
            raise RefusalError(
                f"{ranks} ranks can neither share nor replicate {kv_heads} KV heads evenly: vLLM refuses to start",
                where="engine.tensor_parallel_size",
            )


def _check_retention(groups: Sequence[KVCacheGroup], interval: int | None, scheduler_block_size: int) -> None:
    """vLLM's check of ``--prefix-cache-retention-interval`` (vllm 0.33.0 v1/core/kv_cache_coordinator.py:33)."""
    if not interval:
        return
    if all(group.kind == "full_attention" for group in groups):
        raise RefusalError(
            f"{interval} has nothing to act on, no group has a sliding window: vLLM refuses to start; leave it at 0",
            where="engine.prefix_cache_retention_interval",
        )
    if interval % scheduler_block_size:
        raise RefusalError(
            f"{interval} is no multiple of the scheduler block size ({scheduler_block_size}): vLLM refuses to start",
            where="engine.prefix_cache_retention_interval",
        )
