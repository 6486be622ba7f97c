"""From a model and flags to the spec of every layer, one tensor-parallel rank's worth."""

from __future__ import annotations

from sim.engine_config import EngineConfig
from sim.models import LayerShape, Model
from sim.planning.unify import LayerSpecs
from sim.specs import FullAttentionSpec, SlidingWindowSpec, Spec


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
