"""A model as the planner and the step time see it: its layers' caches, and how large it is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

LayerKind = Literal["full", "sliding_window"]


@dataclass(frozen=True, slots=True)
class LayerShape:
    """What one attention layer stores per token, before tensor parallelism divides it.

    ``window`` is in tokens, the one being computed included, and None for full attention. Head sizes are in elements.
    """

    kind: LayerKind
    window: int | None
    num_kv_heads: int
    head_size: int
    head_size_v: int


@dataclass(frozen=True, slots=True)
class Model:
    """One model: layers in construction order (which decides the groups), and the sizes that cost time.

    ``params_total`` counts all weights; ``params_active`` those one token is multiplied with, which leaves out the
    input embedding and all but ``experts_per_token`` of the ``num_experts`` routed experts; ``expert_params`` all
    routed experts of all layers together (0 for a dense model). ``weight_bytes_per_param`` is for everything else
    than the routed experts, ``expert_bytes_per_param`` for them. ``origin`` says where each number comes from.
    """

    name: str
    layers: tuple[LayerShape, ...]
    max_model_len: int
    dtype: str
    hidden_size: int
    num_attention_heads: int
    params_total: int
    params_active: int
    expert_params: int = 0
    num_experts: int = 0
    experts_per_token: int = 0
    weight_bytes_per_param: float = 2.0
    expert_bytes_per_param: float = 2.0
    origin: Mapping[str, str] = field(default_factory=dict, compare=False)

    @property
    def num_hidden_layers(self) -> int:
        """How many layers there are; every one of them has an attention cache of its own."""
        return len(self.layers)

    @property
    def params_dense(self) -> int:
        """Weights every step reads whatever it computes: the active ones that belong to no routed expert."""
        if not self.num_experts:
            return self.params_active
        return self.params_active - self.expert_params * self.experts_per_token // self.num_experts

    @property
    def layer_counts(self) -> dict[str, int]:
        """Layers per kind, such as ``{"sliding_window 1024": 52, "full": 10}``, in order of first appearance."""
        counts: dict[str, int] = {}
        for layer in self.layers:
            label = layer.kind if layer.window is None else f"{layer.kind} {layer.window}"
            counts[label] = counts.get(label, 0) + 1
        return counts
