"""From a model and flags to the spec of every layer, one tensor-parallel rank's worth."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import replace
from typing import Any, Final

from sim.engine_config import EngineConfig
from sim.errors import RefusalError
from sim.models import LayerShape, Model
from sim.planning.backend import Backend
from sim.planning.backends import layer_backends
from sim.planning.skip_layers import layer_kv_cache_dtype
from sim.planning.stages import layers_per_stage
from sim.planning.state_alignment import BlockAlignment, align_blocks, state_spec
from sim.planning.unify import LayerSpecs
from sim.specs import (
    AttentionSpec,
    ChunkedLocalAttentionSpec,
    CircularBufferSpec,
    CrossAttentionSpec,
    FullAttentionSpec,
    HiddenStateCacheSpec,
    KernelBlocks,
    MLAAttentionSpec,
    RSWASpec,
    SinkFullAttentionSpec,
    SlidingWindowMLASpec,
    SlidingWindowSpec,
    Spec,
)
from sim.units import cdiv, dtype_bytes


def layer_specs(model: Model, engine: EngineConfig) -> LayerSpecs:
    """The spec of every layer on one tensor-parallel rank, by name (``layers.0`` ...), in construction order.

    Below one KV head per rank the heads are replicated, so pages stop shrinking (vllm 0.33.0 config/model.py:1663).
    Layers without a cache are left out, and a draft's where the flags name no draft that has layers.
    """
    blocks = align_blocks(model, engine)
    made: dict[tuple[object, ...], Spec] = {}  # layers are many and of few kinds
    specs: dict[str, Spec] = {}
    backends = layer_backends(model, engine)
    for position, (name, layer, backend) in enumerate(zip(layer_names(model), model.layers, backends, strict=True)):
        if _has_cache(layer, engine):
            dtype = layer_kv_cache_dtype(layer, position, model, engine)
            same = (layer.stored, dtype, backend)
            if same not in made:
                made[same] = _layer_spec(layer, model, engine, blocks, backend, dtype)
            specs[name] = made[same]
    return specs


def _has_cache(layer: LayerShape, engine: EngineConfig) -> bool:
    return layer.kind != "no_cache" and (engine.uses_draft_layers or not layer.draft)


def layer_names(model: Model) -> list[str]:
    """``layers.`` and the decoder layer; a letter more where one decoder layer has several caches."""
    names: list[str] = []
    taken: dict[str, int] = {}
    for position, layer in enumerate(model.layers):
        depth = position if layer.depth is None else layer.depth
        name = f"draft.{depth}" if layer.draft else f"layers.{depth}"
        again = taken.get(name, 0)
        taken[name] = again + 1
        names.append(f"{name}.{again}" if again else name)
    return names


def stage_names(model: Model, engine: EngineConfig) -> list[Collection[str]]:
    """The layers of each pipeline stage, by name; a draft runs on the last one."""
    counts = layers_per_stage(model.num_hidden_layers, engine.pipeline_parallel_size)
    stage_of_depth = [stage for stage, count in enumerate(counts) for _ in range(count)]
    stages: list[list[str]] = [[] for _ in counts]
    for position, (name, layer) in enumerate(zip(layer_names(model), model.layers, strict=True)):
        if _has_cache(layer, engine):
            depth = position if layer.depth is None else layer.depth
            stages[-1 if layer.draft else stage_of_depth[depth]].append(name)
    return [frozenset(names) for names in stages]


def _layer_spec(
    layer: LayerShape,
    model: Model,
    engine: EngineConfig,
    blocks: BlockAlignment,
    backend: Backend | None,
    cache_dtype: str,
) -> Spec:
    """The layer's spec; every context-parallel rank holds the whole cache of a draft that queries in blocks.

    vllm 0.33.0 v1/worker/gpu/model_runner.py:611 and v1/worker/gpu/spec_decode/dflash/speculator.py:46.
    """
    if layer.state is not None:
        return state_spec(layer.state, model, engine, blocks)
    dtype = layer.dtype or _stored_dtype(layer, model, cache_dtype, backend)
    fields: dict[str, Any] = {
        "block_size": _ring_size(layer, engine) or blocks.block_size,
        "num_kv_heads": max(1, layer.num_kv_heads // (1 if layer.replicated else engine.tensor_parallel_size)),
        "head_size": layer.head_size,
        "dtype": dtype,
        "head_size_v": layer.head_size_v,
        "state_bytes": layer.state_bytes or _own_state_bytes(layer, dtype),
        "tokens_per_state": layer.tokens_per_state,
        "is_draft": layer.draft,
        "dcp_sharded": not layer.replicated
        and not (layer.draft and engine.speculative_method == "dflash" and layer.kind != "mla"),
    }
    made: Spec = _CLASSES[layer.kind](**fields, **_own_fields(layer))
    if layer.kind == "sliding_window" and backend is not None:
        made = _window_blocks(made, blocks, backend)
    return _aligned(made, backend)


def _ring_size(layer: LayerShape, engine: EngineConfig) -> int | None:
    """The layer's own block size; that of a ring leaves room for draft tokens that may be rejected.

    vllm 0.33.0 models/qwen4_exp/common/qsa_cache.py:842 and models/glm5next/common/attention.py:156.
    """
    if layer.block_size is None or layer.ring == "fixed":
        return layer.block_size
    times = cdiv(layer.block_size + engine.num_speculative_tokens, layer.block_size)
    return layer.block_size * (times if layer.ring == "multiple" else 1 << (times - 1).bit_length())


def _window_blocks(spec: Spec, blocks: BlockAlignment, backend: Backend) -> Spec:
    """Windows take the largest kernel block within the common one, or within the page that skipped layers share.

    vllm 0.33.0 model_executor/layers/attention/attention.py:584-640. Raises RefusalError where none fits that page.
    """
    if blocks.shared_page is None:
        return spec.resized(backend.largest_within(blocks.block_size))
    per_token = spec.resized(1).unpadded_page_size_bytes
    sized = spec.resized(backend.largest_within(blocks.shared_page // per_token))
    if sized.unpadded_page_size_bytes > blocks.shared_page:
        raise RefusalError(
            f"blocks of {sized.block_size} tokens take {sized.unpadded_page_size_bytes} bytes in layers with a window,"
            f" more than the page of {blocks.shared_page} they share: vLLM fails to start",
            where="engine.kv_cache_dtype_skip_layers",
        )
    return replace(sized, page_size_padded=blocks.shared_page)


def _aligned(spec: Spec, backend: Backend | None) -> Spec:
    """Blocks larger than all kernel blocks are cut into them, sparse kernels read whole rows (v1/worker/utils.py:476).

    The distance between two blocks is a multiple of either.
    """
    if backend is None or not isinstance(spec, AttentionSpec):
        return spec
    if backend.stride_rows is not None:
        return replace(spec, block_stride_alignment=backend.stride_rows * spec.content_bytes)
    tokens = backend.stride_tokens or (None if backend.multiples else max(backend.sizes))
    return spec if tokens is None else replace(spec, block_stride_alignment=KernelBlocks(tokens))


def _own_state_bytes(layer: LayerShape, dtype: str) -> int | None:
    """Kernels of a model's own keep no scales inside the page, and pack nothing."""
    packed = dtype == "nvfp4" or dtype.endswith("_per_token_head")
    if layer.backend not in ("FLASH_ATTN_DIFFKV", "MINIMAX_M3_SPARSE") or not packed:
        return None
    return (layer.head_size + layer.head_size_v) * dtype_bytes(dtype)


def _stored_dtype(layer: LayerShape, model: Model, dtype: str, backend: Backend | None) -> str:
    """The flag's dtype, or the model's; sparse MLA stores rows of a format of its own when they are quantized."""
    if layer.backend == "MINIMAX_M3_SPARSE_INDEXER":
        return model.dtype
    if backend is None:
        sparse = layer.kind == "mla" and any(other.cache_role == "indexer" for other in model.layers)
        rows = sparse and dtype.startswith("fp8")
    else:
        rows = (backend.name == "FLASHMLA_SPARSE" and dtype.startswith("fp8")) or backend.name.endswith("SM120")
    if rows:
        return "fp8_ds_mla"
    return model.dtype if dtype == "auto" else dtype


def _own_fields(layer: LayerShape) -> dict[str, Any]:
    """What a spec of this kind has beside the page."""
    latent = {"alignment": layer.alignment}
    fields: dict[str, dict[str, Any]] = {
        "sliding_window": {"sliding_window": layer.window},
        "chunked_local": {"attention_chunk_size": layer.chunk_size},
        "mla": {
            **latent,
            "cache_role": layer.cache_role,
            "is_index_group_leader": layer.is_index_group_leader,
            "topk_buffer_width": layer.topk_buffer_width,
        },
        "sliding_window_mla": {**latent, "sliding_window": layer.window, "bounded_replay": layer.bounded_replay},
        "sink": {"sink_len": layer.sink_len},
        "rswa": {"rswa_window": layer.window},
    }
    return fields.get(layer.kind, {})


_CLASSES: Final[dict[str, Callable[..., Spec]]] = {
    "full": FullAttentionSpec,
    "sliding_window": SlidingWindowSpec,
    "chunked_local": ChunkedLocalAttentionSpec,
    "mla": MLAAttentionSpec,
    "sliding_window_mla": SlidingWindowMLASpec,
    "cross": CrossAttentionSpec,
    "sink": SinkFullAttentionSpec,
    "rswa": RSWASpec,
    "circular": CircularBufferSpec,
    "hidden_state": HiddenStateCacheSpec,
}
