"""The plan: everything about the KV cache that is settled before the first request arrives."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from sim.engine_config import EngineConfig
from sim.errors import InputError
from sim.models import Model
from sim.planning.backends import kinds_of_kernels, layout_of
from sim.planning.block_sizes import fine_hits, joint_groups, resolve_block_sizes
from sim.planning.group import KVCacheGroup
from sim.planning.grouping import get_kv_cache_groups
from sim.planning.layers import layer_specs, stage_names
from sim.planning.refusals import check_chunks, check_groups, check_layout, check_model, check_prefill
from sim.planning.sizing import Memory, blocks_per_request, charged_blocks, max_block_bytes, num_blocks_or_refusal
from sim.planning.stages import split_groups, split_layers
from sim.planning.unify import LayerSpecs
from sim.specs import ChunkedLocalAttentionSpec, SlidingWindowSpec


@dataclass(frozen=True, slots=True)
class KVCachePlan:
    """Groups, blocks and block sizes of one engine.

    ``block_bytes`` are those of a whole block on the fullest pipeline stage; of these a group's layers there fill its
    ``content_bytes``, and the rest is padding. ``num_blocks`` counts the null block too;
    ``kv_cache_size_tokens`` and ``max_concurrency`` are the two numbers vLLM prints at start. ``spec_groups`` are the
    ids of groups with one spec, which are looked up together, full attention first. ``admission_blocks`` are, per
    group, the most blocks a request is charged for; ``admission_caps`` the same where vLLM's manager holds a request to
    them while it runs, None where it does not. ``group_block_sizes`` are the tokens a block stands for, over all ranks
    of decode context parallelism. With ``enable_partial_hash_hits``, hits may end at any hash unit;
    ``cache_hit_alignment_tokens`` says at what they end. ``drops_last_block``: eagle groups lose the last block of a
    hit. ``encoder_tokens``: the longest input to the model's encoder, which vLLM pads every shorter one to.
    """

    groups: tuple[KVCacheGroup, ...]
    block_bytes: int
    content_bytes: tuple[int, ...]
    num_blocks: int
    scheduler_block_size: int
    hash_block_size: int
    kv_cache_size_tokens: int
    max_concurrency: float
    max_model_len: int
    max_in_flight_tokens: int
    spec_groups: tuple[tuple[int, ...], ...]
    admission_blocks: tuple[int, ...]
    admission_caps: tuple[int | None, ...]
    group_block_sizes: tuple[int, ...]
    enable_partial_hash_hits: bool
    cache_hit_alignment_tokens: int
    drops_last_block: bool
    encoder_tokens: int

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
    check_model(model, engine)
    engine = effective_engine(model, engine)
    return plan_layers(
        layer_specs(model, engine),
        engine,
        memory,
        stage_names=stage_names(model, engine),
        encoder_tokens=model.max_source_positions,
    )


def effective_engine(model: Model, engine: EngineConfig) -> EngineConfig:
    """The flags as vLLM changes them for this model.

    Its kernels may insist on a layout, or prefer one. There is no hybrid manager for chunks where it does not support
    them: beside a draft that reads hidden states, and where the environment forbids it (vllm 0.33.0
    config/vllm.py:2235-2255).
    """
    if model.kv_cache_layout is not None:
        engine = replace(engine, kv_cache_layout=model.kv_cache_layout)
    elif model.kernels is not None:
        engine = replace(engine, kv_cache_layout=layout_of(kinds_of_kernels(model, engine), engine))
    chunks = any(layer.kind == "chunked_local" for layer in model.layers)
    if chunks and (engine.use_eagle or not engine.allow_chunked_local_attn_with_hybrid_kv_cache):
        return replace(engine, disable_hybrid_kv_cache_manager=True)
    return engine


def plan_layers(
    layers: LayerSpecs,
    engine: EngineConfig,
    memory: Memory,
    *,
    stage_names: Sequence[Collection[str]] | None = None,
    encoder_tokens: int = 0,
) -> KVCachePlan:
    """The plan of layers whose specs are given, one rank's worth, in construction order; at least one layer.

    Groups are made of the whole model, then each pipeline stage gets its layers of every group: those of
    ``stage_names``, or an even share of them in order.
    """
    if not layers:
        raise InputError("no layer has a KV cache, so there is nothing to plan", where="model.layers")
    check_prefill(layers.values(), engine, encoder_tokens)
    groups = engine_groups(layers, engine)
    stages = split_groups(groups, stage_names or split_layers(tuple(layers), engine.pipeline_parallel_size))
    num_blocks = num_blocks_or_refusal(stages, engine, memory)
    check_layout(stages, engine)
    dcp = engine.decode_context_parallel_size
    scheduler_block_size, hash_block_size = resolve_block_sizes(
        groups,
        enable_prefix_caching=engine.enable_prefix_caching,
        prefix_match_unit=engine.prefix_match_unit,
        dcp_world_size=dcp,
    )
    check_groups(groups, engine, scheduler_block_size)
    concurrency = num_blocks / blocks_per_request(groups, engine, engine.max_model_len)
    partial = fine_hits(groups, engine, hash_block_size)
    hits_end_at = hash_block_size if partial else scheduler_block_size
    if engine.enable_prefix_caching:
        check_chunks(groups, engine, hits_end_at)
    charged = tuple(charged_blocks(group.spec, engine, engine.max_model_len) for group in groups)
    fullest = max(stages, key=lambda stage: max_block_bytes([stage], block_outermost=engine.block_outermost))
    return KVCachePlan(
        groups=groups,
        content_bytes=tuple(sum(spec.unpadded_page_size_bytes for spec in group.layer_specs) for group in fullest),
        block_bytes=max_block_bytes(stages, block_outermost=engine.block_outermost),
        num_blocks=num_blocks,
        scheduler_block_size=scheduler_block_size,
        hash_block_size=hash_block_size,
        kv_cache_size_tokens=int(concurrency * engine.max_model_len),
        max_concurrency=concurrency,
        max_model_len=engine.max_model_len,
        max_in_flight_tokens=engine.max_in_flight_tokens,
        spec_groups=joint_groups(groups),
        admission_blocks=charged,
        admission_caps=tuple(
            blocks if _recycles(group) else None for group, blocks in zip(groups, charged, strict=True)
        ),
        group_block_sizes=tuple(group.spec.token_span(dcp) for group in groups),
        enable_partial_hash_hits=partial,
        cache_hit_alignment_tokens=hits_end_at,
        drops_last_block=engine.drops_last_block,
        encoder_tokens=encoder_tokens,
    )


def engine_groups(layers: LayerSpecs, engine: EngineConfig) -> tuple[KVCacheGroup, ...]:
    """The groups of these layers under the engine's flags.

    Windows keep what several draft modules read again; groups with draft layers are marked (vllm 0.33.0
    v1/core/kv_cache_planning.py:1607-1657).
    """
    extra = engine.extra_retained_tokens
    layers = {
        name: replace(spec, extra_retained_tokens=extra) if isinstance(spec, SlidingWindowSpec) else spec
        for name, spec in layers.items()
    }
    groups = get_kv_cache_groups(
        layers,
        disable_hybrid_kv_cache_manager=engine.disable_hybrid_kv_cache_manager,
        block_outermost=engine.block_outermost,
    )
    return mark_eagle(groups, layers) if engine.use_eagle_block_drop else groups


def mark_eagle(groups: Sequence[KVCacheGroup], layers: LayerSpecs) -> tuple[KVCacheGroup, ...]:
    """The groups, those marked that hold a draft's layers."""
    return tuple(
        replace(group, is_eagle_group=any(layers[name].is_draft for name in group.layer_names)) for group in groups
    )


def _recycles(group: KVCacheGroup) -> bool:
    """Whether the group's manager frees blocks of running requests, and so caps what it takes for admission.

    vllm 0.33.0 v1/core/single_type_kv_cache_manager.py:2642.
    """
    return isinstance(group.spec, SlidingWindowSpec | ChunkedLocalAttentionSpec)
