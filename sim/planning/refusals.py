"""What vLLM refuses once model, flags and groups are known."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from sim.engine_config import EngineConfig
from sim.errors import InputError, RefusalError
from sim.models import Model
from sim.planning.group import KVCacheGroup
from sim.planning.media import check_items
from sim.planning.skip_layers import check_skip_layers
from sim.specs import (
    ChunkedLocalAttentionSpec,
    CrossAttentionSpec,
    FullAttentionSpec,
    MambaSpec,
    SinkFullAttentionSpec,
    SlidingWindowSpec,
    Spec,
)


def check_model(model: Model, engine: EngineConfig) -> None:
    """Raise for flags that this model cannot be run with."""
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
    dtypes = () if model.kernels is None else model.kernels.dtypes
    if dtypes and model.dtype not in dtypes:
        raise RefusalError(
            f"{model.dtype} is not supported by the quantization of {model.name}, which runs in {' or '.join(dtypes)}:"
            " vLLM refuses to start",
            where="dtype",
        )
    if engine.kv_cache_dtype in ("float16", "bfloat16") and engine.kv_cache_dtype != model.dtype:
        raise RefusalError(
            f"{engine.kv_cache_dtype} contradicts the model's dtype {model.dtype}: vLLM refuses to start; use auto",
            where="engine.kv_cache_dtype",
        )
    if engine.kv_cache_dtype == "fp8_ds_mla" and not any(layer.kind == "mla" for layer in model.layers):
        raise RefusalError(
            f"fp8_ds_mla is a format of sparse MLA, which {model.name} has not: vLLM refuses to start; use fp8 or auto",
            where="engine.kv_cache_dtype",
        )
    has_states = any(layer.state is not None for layer in model.layers)
    if has_states and engine.enable_prefix_caching and not engine.enable_chunked_prefill:
        raise RefusalError(
            "prefix caching of states needs chunked prefill: vLLM refuses to start",
            where="engine.enable_chunked_prefill",
        )
    if engine.uses_draft_layers and not any(layer.draft for layer in model.layers):
        raise InputError(
            f"{engine.speculative_method} drafts with layers of its own, and {model.name} has none; give them, as"
            " {base: a model, draft_layers: [{kind: full}]} or with draft: true",
            where="engine.speculative_method",
        )
    if engine.data_parallel_size > 1 and engine.prefill_schedule_interval > 1 and model.num_experts:
        raise InputError(
            f"{engine.prefill_schedule_interval} is not modelled for replicas of a model with experts, which hold"
            " prefill back together; leave it at 1",
            where="engine.prefill_schedule_interval",
        )
    _check_tensor_parallel(model, engine.tensor_parallel_size, vision_shared=engine.mm_encoder_tp_mode == "weights")
    check_items(model, engine)
    check_skip_layers(model, engine)
    _check_context_parallel_heads(model, engine)


def _check_tensor_parallel(model: Model, ranks: int, *, vision_shared: bool) -> None:
    """Ranks share the attention heads evenly; KV heads evenly too, or all ranks replicate them equally often.

    Heads of a vision tower they share unless each rank has all of it.

    vllm 0.33.0 config/model.py:1557 and, for KV heads, model_executor/layers/linear.py.
    """
    heads = model.num_attention_heads
    if heads % ranks and model.origin.get("num_attention_heads") != "estimated":
        raise RefusalError(
            f"{ranks} does not divide the {heads} attention heads of {model.name}: vLLM refuses to start",
            where="engine.tensor_parallel_size",
        )
    vision = 0 if model.kernels is None else model.kernels.vision_heads
    if vision_shared and vision % ranks:
        raise RefusalError(
            f"{ranks} does not divide the {vision} heads of the vision tower of {model.name}: vLLM refuses to start",
            where="engine.tensor_parallel_size",
        )
    for kv_heads in sorted({layer.num_kv_heads for layer in model.layers}):
        if kv_heads % ranks and ranks % kv_heads:
            raise RefusalError(
                f"{ranks} ranks can neither share nor replicate {kv_heads} KV heads evenly: vLLM refuses to start",
                where="engine.tensor_parallel_size",
            )
    for state in (layer.state for layer in model.layers if layer.state is not None and not layer.state.tp_replicated):
        if state.groups > 1 and state.groups % ranks:
            raise RefusalError(
                f"{ranks} does not divide the {state.groups} groups of the states of {model.name}, and vLLM replicates"
                " only a single one: it refuses to start",
                where="engine.tensor_parallel_size",
            )
        if any(shape[0] % ranks for shape in state.shapes[1:]):
            raise RefusalError(
                f"{ranks} does not divide the states of {model.name}: vLLM refuses to start",
                where="engine.tensor_parallel_size",
            )


def _check_context_parallel_heads(model: Model, engine: EngineConfig) -> None:
    """Tokens are dealt out to ranks that would replicate KV heads otherwise (vllm 0.33.0 config/model.py:1578)."""
    ranks = engine.decode_context_parallel_size
    if ranks == 1 or any(layer.kind == "mla" for layer in model.layers):
        return
    heads = max((layer.num_kv_heads for layer in model.layers), default=0)
    if not heads:  # vLLM divides by their number
        raise RefusalError(
            f"{model.name} has no KV heads that ranks could share: vLLM refuses to start; leave it at 1",
            where="engine.decode_context_parallel_size",
        )
    sharing = engine.tensor_parallel_size // heads
    if engine.tensor_parallel_size <= heads or ranks > sharing:
        raise RefusalError(
            f"{ranks} is more than the {sharing} ranks that share each of {heads} KV heads: vLLM refuses to start;"
            " raise tensor_parallel_size or leave it at 1",
            where="engine.decode_context_parallel_size",
        )
    if model.num_attention_heads // heads % ranks:
        raise RefusalError(
            f"{ranks} does not divide the {model.num_attention_heads // heads} query heads of a KV head: vLLM refuses"
            " to start",
            where="engine.decode_context_parallel_size",
        )


def check_groups(groups: Sequence[KVCacheGroup], engine: EngineConfig, scheduler_block_size: int) -> None:
    """Raise RefusalError for what vLLM's coordinator and managers refuse, in their order."""
    caching = engine.enable_prefix_caching
    if caching and scheduler_block_size < engine.num_prefill_lookahead_tokens and _any_eagle(groups, engine):
        raise RefusalError(
            f"{engine.num_speculative_tokens} is more than the scheduler block size ({scheduler_block_size}), which"
            " several draft modules need for prefix caching: vLLM refuses to start",
            where="engine.num_speculative_tokens",
        )
    for group in groups:
        if isinstance(group.spec, SinkFullAttentionSpec):
            raise RefusalError(
                "vLLM 0.33.0 fails with a TypeError where it makes the manager of a group with attention sinks",
                where="model.layers",
            )
        if isinstance(group.spec, CrossAttentionSpec) and caching:
            raise RefusalError(
                "cross attention cannot be cached: vLLM fails; set enable_prefix_caching to false",
                where="engine.enable_prefix_caching",
            )
    windows = sorted({group.spec.prefix_replay_tokens for group in groups if group.spec.prefix_replay_tokens})
    if len(windows) > 1:
        raise RefusalError(
            f"windows of {', '.join(map(str, windows))} tokens that are replayed: vLLM refuses to start with more than"
            " one size",
            where="model.layers",
        )
    check_retention(groups, engine.prefix_cache_retention_interval, scheduler_block_size)
    if engine.decode_context_parallel_size > 1 and caching:
        _check_context_parallel(groups)
    if caching and len(groups) > 1 and not any(group.prefix_cacheable for group in groups):
        raise RefusalError("no group can be cached: vLLM refuses to start", where="engine.enable_prefix_caching")


def check_prefill(layers: Iterable[Spec], engine: EngineConfig, encoder_tokens: int) -> None:
    """Raise RefusalError for a threshold of prefill that nothing reaches, and for a batch without room for an encoder.

    Beside cross attention chunked prefill and its threshold are off, and the batch has to hold what is then never cut:
    a prompt, an input to the encoder (vllm 0.33.0 config/scheduler.py:296-350, v1/core/encoder_cache_manager.py:361).
    """
    if not any(isinstance(spec, CrossAttentionSpec) for spec in layers):
        if engine.long_prefill_token_threshold > engine.max_model_len:
            raise RefusalError(
                f"{engine.long_prefill_token_threshold} is greater than max_model_len ({engine.max_model_len}): vLLM"
                " refuses to start",
                where="engine.long_prefill_token_threshold",
            )
        return
    budget = engine.max_num_batched_tokens
    for tokens, what in ((engine.max_model_len, "max_model_len"), (encoder_tokens, "the encoder's longest input")):
        if budget < tokens:
            raise RefusalError(
                f"{budget} is smaller than {what} ({tokens}), and a model with an encoder takes neither in chunks: vLLM"
                " refuses to start; raise it",
                where="engine.max_num_batched_tokens",
            )


def _check_context_parallel(groups: Sequence[KVCacheGroup]) -> None:
    """Beside other groups, only full attention can be dealt out to ranks (v1/core/kv_cache_coordinator.py:684)."""
    for group in groups:
        if len(groups) > 1 and group.spec.dcp_sharded and not isinstance(group.spec, FullAttentionSpec):
            raise RefusalError(
                f"a group of {group.kind} cannot be dealt out to context-parallel ranks: vLLM refuses to start",
                where="engine.decode_context_parallel_size",
            )


def check_chunks(groups: Sequence[KVCacheGroup], engine: EngineConfig, hits_end_at: int) -> None:
    """Raise RefusalError where vLLM fails at the first look-up in a group of chunked local attention.

    vllm 0.33.0 v1/core/single_type_kv_cache_manager.py:1329-1341.
    """
    marked = {group.spec for group in groups if group.is_eagle_group}
    for group in groups:
        if not isinstance(group.spec, ChunkedLocalAttentionSpec):
            continue
        if engine.drops_last_block and (group.spec in marked or not marked):
            raise _no_chunks("beside a draft that reads hidden states", "engine.speculative_method")
        if engine.decode_context_parallel_size > 1 and group.spec.dcp_sharded:
            raise _no_chunks("with context parallelism", "engine.decode_context_parallel_size")
        if group.block_size != hits_end_at:
            raise _no_chunks(
                f"with blocks of {group.block_size} tokens while hits end at multiples of {hits_end_at}", "model.layers"
            )


def _no_chunks(what: str, where: str) -> RefusalError:
    return RefusalError(f"chunked local attention {what}: vLLM fails at the first request", where=where)


def check_layout(stages: Sequence[Sequence[KVCacheGroup]], engine: EngineConfig) -> None:
    """Padded pages need a layout that keeps each together, pages of several sizes one that keeps all of a block.

    vllm 0.33.0 v1/core/kv_cache_planning.py:608 and :711, v1/kv_cache_interface.py:402.
    """
    layout = engine.kv_cache_layout
    compact = set(layout[:2]) == {"L", "B"}
    for groups in stages:
        specs = [spec for group in groups for spec in group.layer_specs]
        pages = sorted({spec.page_size_bytes for spec in specs})
        padded = [spec for spec in specs if _is_padded(spec, engine)]
        if padded and not compact:
            raise RefusalError(
                f"{layout} has no place for the padding of pages of {padded[0].page_size_bytes} bytes: vLLM fails to"
                " start",
                where="engine.kv_cache_layout",
            )
        if len(pages) > 1 and (not compact or (len(groups) > 1 and not engine.block_outermost)):
            raise RefusalError(
                f"{layout} has no place for pages of {', '.join(map(str, pages))} bytes: vLLM refuses to start",
                where="engine.kv_cache_layout",
            )


def _is_padded(spec: Spec, engine: EngineConfig) -> bool:
    """Whether padding follows the page: its own, behind several heads, or what kernels align blocks to."""
    aligned = not engine.block_outermost and spec.stride_bytes != spec.page_size_bytes
    return aligned or (spec.page_size_padded is not None and getattr(spec, "num_kv_heads", 1) > 1)


def _any_eagle(groups: Sequence[KVCacheGroup], engine: EngineConfig) -> bool:
    return any(group.is_eagle_group for group in groups) or engine.drops_last_block


def check_retention(groups: Sequence[KVCacheGroup], interval: int | None, scheduler_block_size: int) -> None:
    """vLLM's check of ``--prefix-cache-retention-interval`` (vllm 0.33.0 v1/core/kv_cache_coordinator.py:33)."""
    if interval is None:
        return
    if not any(isinstance(group.spec, SlidingWindowSpec | MambaSpec) for group in groups):
        if interval == 0:
            return
        raise RefusalError(
            f"{interval} has nothing to act on, no group has a sliding window or a state: vLLM refuses to start; leave"
            " it at 0",
            where="engine.prefix_cache_retention_interval",
        )
    if interval % scheduler_block_size:
        raise RefusalError(
            f"{interval} is no multiple of the scheduler block size ({scheduler_block_size}): vLLM refuses to start",
            where="engine.prefix_cache_retention_interval",
        )
