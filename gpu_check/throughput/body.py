"""The layers that are run for a model: its attention as planned, and matrix products of its size for the rest.

On a GPU they are one rank's share of the whole model. On a CPU they are scaled down, which is said; the steps, their
requests and block tables remain the scenario's. Either way the same sizes are what the simulator prices.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from typing import Any

from gpu_check.kernels import AttentionShape
from sim.engine_config import EngineConfig
from sim.models import LayerShape, Model
from sim.planning import KVCachePlan
from sim.specs.attention import AttentionSpec

ATTENTION = ("full_attention", "sliding_window", "chunked_local_attention")
"""Kinds of KV cache groups that are run; layers of others are left out, and the report says so."""
CPU_LAYERS, CPU_HEADS, CPU_HEAD_SIZE, CPU_HIDDEN, CPU_WIDTH, CPU_EXPERTS = 2, 2, 64, 256, 2048, 8


@dataclass(frozen=True, slots=True)
class LayerKind:
    """``count`` layers with this attention, whose blocks are those of a KV cache group."""

    shape: AttentionShape
    count: int
    group: int


@dataclass(frozen=True, slots=True)
class Body:
    """What is run of a model, on one rank.

    Beside attention each layer multiplies every token with a matrix [hidden, width]; with experts, also with
    [hidden, expert_width] of ``experts_per_token`` out of ``experts``. ``model`` and ``engine`` are those sizes as the
    simulator prices them, weights as wide as ``dtype``; ``note`` says what is not the model's.
    """

    kinds: tuple[LayerKind, ...]
    hidden: int
    width: int
    experts: int
    experts_per_token: int
    expert_width: int
    dtype: Any
    model: Model
    engine: EngineConfig
    note: str

    @property
    def num_layers(self) -> int:
        """Layers that are run."""
        return sum(kind.count for kind in self.kinds)


def make_body(model: Model, engine: EngineConfig, plan: KVCachePlan, *, on_gpu: bool) -> Body | None:
    """The body of a model; None where none of its layers has attention that can be run."""
    import torch

    dtype = torch.bfloat16 if on_gpu else torch.float32
    kinds = _kinds(model, engine, plan, dtype)
    if not kinds:
        return None
    left_out = sum(len(group.layer_names) for group in plan.groups) - sum(kind.count for kind in kinds)
    note = f"{left_out} layers without such attention are left out; " if left_out else ""
    if on_gpu:
        return _whole(model, engine, kinds, dtype, note)
    return _scaled(model, engine, kinds, dtype, note)


def all_full(body: Body) -> Body:
    """The same layers without windows and chunks: what the hybrid attention is compared with."""
    kinds = tuple(replace(kind, shape=replace(kind.shape, window=0, chunk=0)) for kind in body.kinds)
    full = replace(body, kinds=kinds)
    return replace(full, model=_priced(full, f"{body.model.name}, all full", body.engine.tensor_parallel_size))


def _kinds(model: Model, engine: EngineConfig, plan: KVCachePlan, dtype: Any) -> list[LayerKind]:
    """One kind per different spec of a group, as one rank has it."""
    heads = max(1, model.num_attention_heads // engine.tensor_parallel_size)
    found = []
    for index, group in enumerate(plan.groups):
        for spec, count in Counter(group.layer_specs).items():
            if not isinstance(spec, AttentionSpec) or spec.kind not in ATTENTION:
                continue
            size, size_v = int(spec.head_size), int(spec.head_size_v or spec.head_size)
            window = int(getattr(spec, "sliding_window", None) or 0)
            chunk = int(getattr(spec, "attention_chunk_size", None) or 0)
            kv = int(spec.num_kv_heads)
            shape = AttentionShape(
                max(heads // kv, 1) * kv, kv, size, size_v, int(spec.block_size), dtype, size**-0.5, window, chunk
            )
            found.append(LayerKind(shape, count, index))
    return found


def _whole(model: Model, engine: EngineConfig, kinds: list[LayerKind], dtype: Any, note: str) -> Body:
    ranks, layers = engine.tensor_parallel_size, model.num_hidden_layers
    width = max(1, model.params_dense // layers // model.hidden_size // ranks)
    per_expert = model.expert_params // layers // model.num_experts if model.num_experts else 0
    note += f"one of {ranks} ranks, no all-reduce; " if ranks > 1 else ""
    note += "weights in bfloat16 whatever the model's are; " if model.weight_bytes_per_param != dtype.itemsize else ""
    body = Body(
        tuple(kinds),
        model.hidden_size,
        width,
        model.num_experts,
        model.experts_per_token,
        max(1, per_expert // model.hidden_size // ranks) if per_expert else 0,
        dtype,
        model,
        engine,
        note + "eager launches, no sampling",
    )
    return replace(body, model=_priced(body, model.name, ranks))


def _scaled(model: Model, engine: EngineConfig, kinds: list[LayerKind], dtype: Any, note: str) -> Body:
    counts: Counter[AttentionShape] = Counter()
    for kind in kinds:
        counts[kind.shape] += kind.count
    first = {kind.shape: kind for kind in reversed(kinds)}  # groups alike are one here: the first one's tables
    most, small = max(counts.values()), []
    for kind in (replace(first[shape], count=count) for shape, count in counts.items()):
        group = min(kind.shape.group, CPU_HEADS)
        sizes = {name: min(getattr(kind.shape, name), CPU_HEAD_SIZE) for name in ("head_size", "head_size_v")}
        shape = replace(kind.shape, num_heads=group, num_kv_heads=1, scale=sizes["head_size"] ** -0.5, **sizes)
        small.append(LayerKind(shape, max(1, round(CPU_LAYERS * kind.count / most)), kind.group))
    experts = min(model.num_experts, CPU_EXPERTS)
    body = Body(
        tuple(small),
        min(model.hidden_size, CPU_HIDDEN),
        CPU_WIDTH,
        experts,
        min(model.experts_per_token, 2) if experts else 0,
        CPU_HIDDEN if experts else 0,
        dtype,
        model,
        replace(engine, tensor_parallel_size=1, pipeline_parallel_size=1, decode_context_parallel_size=1),
        "",
    )
    layers, heads = body.num_layers, small[0].shape.num_heads
    note += (
        f"scaled down for a CPU: {layers} of {model.num_hidden_layers} layers, hidden size {body.hidden} of "
        f"{model.hidden_size}, {heads} of {model.num_attention_heads} heads of {small[0].shape.head_size}, float32"
    )
    return replace(body, model=_priced(body, f"{model.name}, scaled down", 1), note=note)


def _priced(body: Body, name: str, ranks: int) -> Model:
    """A model of exactly the sizes that are run, for the simulator's price; sizes of all ranks together."""
    layers = []
    for kind in body.kinds:
        shape = kind.shape
        layer = LayerShape(
            "sliding_window" if shape.window else "chunked_local" if shape.chunk else "full",
            shape.window or None,
            shape.num_kv_heads * ranks,
            shape.head_size,
            shape.head_size_v,
            chunk_size=shape.chunk or None,
        )
        layers += [layer] * kind.count
    bytes_each = float(body.dtype.itemsize)
    dense = len(layers) * body.hidden * body.width * ranks
    per_expert = len(layers) * body.hidden * body.expert_width * ranks
    return replace(
        body.model,
        name=name,
        layers=tuple(layers),
        dtype=str(body.dtype).removeprefix("torch."),
        hidden_size=body.hidden,
        num_attention_heads=max(kind.shape.num_heads for kind in body.kinds) * ranks,
        params_total=dense + body.experts * per_expert,
        params_active=dense + body.experts_per_token * per_expert,
        expert_params=body.experts * per_expert,
        num_experts=body.experts,
        experts_per_token=body.experts_per_token,
        weight_bytes_per_param=bytes_each,
        expert_bytes_per_param=bytes_each,
        num_layers=len(layers),
        vocab_size=0,
    )
