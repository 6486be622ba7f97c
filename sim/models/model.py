"""A model as the planner and the step time see it: its layers' caches, and how large it is."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from operator import attrgetter
from typing import Final, Literal

LayerKind = Literal[
    "full",
    "sliding_window",
    "chunked_local",
    "mamba",
    "mla",
    "sliding_window_mla",
    "cross",
    "sink",
    "rswa",
    "circular",
    "hidden_state",
    "no_cache",
]
"""Kinds of layers; ``no_cache`` stores nothing (encoder-only attention, or a layer that reads another one's cache)."""


_HELPERS: Final = ("QSA_STATE", "CompressorBackend", "DEEPSEEK_V4_INDEXER")
"""Kernels of caches beside attention: keys, or what is not compressed yet."""


@dataclass(frozen=True, slots=True)
class StateShape:
    """The state of a layer without attention, before tensor parallelism divides it.

    The first tensor is divided by its last dimension when it has two (a convolution: taps x channels), any other by
    its first. ``dtypes``: None where the flags decide, or the model. ``grows_with_drafts``: the convolution keeps one
    row more per draft token. ``groups`` and ``group_channels``: groups of the convolution and the channels of each;
    where ranks do not divide the groups, each rank has one of its own. ``checkpoints``: states a kernel exports from
    inside a chunk, at multiples of ``checkpoint_alignment`` tokens, or, with ``on_block_grid``, at the edges of
    blocks, which are made multiples of it. ``needs_hopper``: only kernels for Hopper and newer export them.
    """

    shapes: tuple[tuple[int, ...], ...]
    dtypes: tuple[str | None, ...]
    mamba_type: str = "mamba2"
    grows_with_drafts: bool = False
    groups: int = 0
    group_channels: int = 0
    checkpoints: int = 0
    checkpoint_alignment: int | None = None
    on_block_grid: bool = False
    needs_hopper: bool = False
    tp_replicated: bool = False


@dataclass(frozen=True, slots=True)
class LayerShape:
    """What one layer stores, before tensor parallelism divides it.

    ``window`` is in tokens, the one being computed included (of an ``rswa`` layer: output tokens kept), and None where
    there is none; ``chunk_size`` is that of chunked local attention, in tokens. Head sizes are in elements.
    ``dtype``, ``state_bytes`` (of one token of one head) and ``block_size`` are given where the layer does not follow
    the engine's. ``depth``: which decoder layer it belongs to, None: its own position. ``number``: the one in vLLM's
    name of the layer, None: its depth. ``draft``: it belongs to the draft model. ``backend``: the kernels it insists on
    (:mod:`sim.planning.backends`), None: those of its kind. ``topk_buffer_width`` and ``is_index_group_leader`` tell
    the layers of sparse attention apart. ``ring``: how a circular buffer makes room for draft tokens, by a multiple of
    its ``block_size`` or a power of two times it. ``replicated``: every rank holds all of it.
    ``skippable``: it hears of ``--kv-cache-dtype-skip-layers``.
    """

    kind: LayerKind
    window: int | None
    num_kv_heads: int
    head_size: int
    head_size_v: int
    chunk_size: int | None = None
    state: StateShape | None = None
    dtype: str | None = None
    state_bytes: int | None = None
    tokens_per_state: int = 1
    block_size: int | None = None
    alignment: int | None = None
    cache_role: str = "sparse"
    is_index_group_leader: bool = False
    topk_buffer_width: int | None = None
    backend: str | None = None
    bounded_replay: bool = False
    sink_len: int | None = None
    ring: Literal["fixed", "multiple", "power of two"] = "fixed"
    replicated: bool = False
    depth: int | None = None
    number: int | None = None
    draft: bool = False
    skippable: bool = True

    @property
    def stored(self) -> tuple[object, ...]:
        """All that its cache depends on: every field but its place in the model."""
        return _STORED(self)

    @property
    def is_own_attention(self) -> bool:
        """Whether it is attention of the model itself: no draft's, and nothing that only helps to choose tokens.

        >>> [LayerShape(kind, None, 1, 128, 0).is_own_attention for kind in ("mla", "circular")]
        [True, False]
        """
        helps = self.cache_role == "indexer" or self.backend in _HELPERS
        return not (helps or self.draft or self.kind in ("mamba", "no_cache", "cross", "circular", "hidden_state"))


_STORED: Final[Callable[[LayerShape], tuple[object, ...]]] = attrgetter(
    *(field.name for field in fields(LayerShape) if field.name not in ("depth", "number"))
)


@dataclass(frozen=True, slots=True)
class Kernels:
    """What decides which kernels a model gets: of a config.json; a model written out in a scenario has none.

    Heads are those of the whole model. ``head_size`` is the widest of the model's own attention; ``qk_nope_head_dim``
    that of latent attention. ``attention_free``: the model class has no attention at all. ``mm_prefix``: tokens of an
    image read each other both ways. ``sinks``: attention sinks. ``quantized_on_blackwell``: the KV cache is fp8 there
    unless a flag says otherwise. ``vision_heads``: attention heads of the vision tower, 0 where there is none that
    ranks share. ``items``: the modalities, and tokens of the longest item of each, 0 where only the model's processor
    knows; ``items_named``: vLLM knows them before there is a processor. ``uneven_heads``: wide and narrow heads,
    which only FlashAttention 4 and Triton run together. ``pooling``: it gives out vectors or classes, no text.
    ``dtypes``: those that its quantized weights run in, () for any.
    """

    num_heads: int
    num_kv_heads: int
    head_size: int
    qk_nope_head_dim: int | None = None
    mm_prefix: bool = False
    sinks: bool = False
    quantized_on_blackwell: bool = False
    attention_free: bool = False
    vision_heads: int = 0
    items: tuple[tuple[str, int], ...] = ()
    items_named: bool = False
    uneven_heads: bool = False
    pooling: bool = False
    dtypes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Model:
    """One model: layers in construction order (which decides the groups), and the sizes that cost time.

    ``params_total`` counts all weights; ``params_active`` those one token is multiplied with, which leaves out the
    input embedding and all but ``experts_per_token`` of the ``num_experts`` routed experts; ``expert_params`` all
    routed experts of all layers together (0 for a dense model). ``weight_bytes_per_param`` is for everything else
    than the routed experts, ``expert_bytes_per_param`` for them. ``num_layers`` counts decoder layers where some have
    no cache or several (None: one each); ``max_source_positions`` are the tokens of its encoder's longest input (0: it
    has no encoder); ``kernel_block_size`` is what its kernels want blocks to be a multiple of,
    ``kv_cache_layout`` the layout they insist on (None: any). ``kernels`` decides which those are, where the model
    comes from a config.json; ``kv_cache_dtype`` is what its weights were made for (None: nothing said).
    ``architecture`` is vLLM's name of the model class, ``vocab_size`` 0 where it is not known. ``origin`` says where
    each number comes from.
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
    num_layers: int | None = None
    max_source_positions: int = 0
    kernel_block_size: int = 1
    kv_cache_layout: str | None = None
    kernels: Kernels | None = None
    kv_cache_dtype: str | None = None
    architecture: str | None = None
    vocab_size: int = 0
    origin: Mapping[str, str] = field(default_factory=dict, compare=False)

    @property
    def num_hidden_layers(self) -> int:
        """How many decoder layers there are, those of a draft model left out."""
        return self.num_layers or sum(not layer.draft for layer in self.layers)

    @property
    def prefix_caching_by_default(self) -> bool:
        """Whether vLLM caches prefixes unless told not to: not for encoder-decoder models, nor without any attention.

        vllm 0.33.0 config/model.py:2239.
        """
        if self.kernels is not None:
            return not self.has_encoder and not self.kernels.attention_free
        kinds = {layer.kind for layer in self.layers if not layer.draft}
        return not self.has_encoder and kinds != {"mamba"}

    @property
    def has_encoder(self) -> bool:
        """Whether some layer reads the output of an encoder."""
        return any(layer.kind == "cross" for layer in self.layers)

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
            size = layer.window or layer.chunk_size
            label = layer.kind if size is None else f"{layer.kind} {size}"
            label = f"{label} (draft)" if layer.draft else label
            counts[label] = counts.get(label, 0) + 1
        return counts
