"""Multi-head latent attention: one latent vector per token for all heads, and what is cached in its likeness."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar, Literal

from sim.specs.attention import AttentionSpec
from sim.specs.base import Kind, KVCacheSpec
from sim.specs.full import FullAttentionSpec
from sim.units import cdiv

CacheRole = Literal["sparse", "indexer"]
"""What a cache of sparse attention holds: the latent vectors, or the keys that choose among them."""

_MUST_AGREE = (
    *("block_size", "num_kv_heads", "head_size", "head_size_v", "dtype", "state_bytes", "tokens_per_state"),
    *("page_size_padded", "dcp_sharded", "block_stride_alignment"),
    *("topk_buffer_width", "cache_role", "is_index_group_leader"),
)


def align_page(spec: AttentionSpec, alignment: int | None) -> None:
    """Pad the page of a spec under construction to a multiple of ``alignment`` bytes, where it is not one.

    vllm 0.33.0 v1/kv_cache_interface.py:719.
    """
    if alignment is None:
        return
    padded = cdiv(spec.unpadded_page_size_bytes, alignment) * alignment
    if padded != spec.unpadded_page_size_bytes:
        object.__setattr__(spec, "page_size_padded", padded)


@dataclass(frozen=True)
class MLAAttentionSpec(FullAttentionSpec):
    """A layer that keeps one latent vector per token or per several (vllm 0.33.0 v1/kv_cache_interface.py:729).

    There is no V beside it (``head_size_v`` 0), and tensor parallelism does not shrink it. ``alignment`` rounds the
    page up, in bytes. ``topk_buffer_width``, ``cache_role`` and ``is_index_group_leader`` tell the layers of sparse
    attention apart, which keeps them from merging.
    """

    head_size_v: int | None = 0
    alignment: int | None = field(default=None, kw_only=True)
    topk_buffer_width: int | None = field(default=None, kw_only=True)
    cache_role: CacheRole = field(default="sparse", kw_only=True)
    is_index_group_leader: bool = field(default=False, kw_only=True)

    kind: ClassVar[Kind] = "mla_attention"

    def __post_init__(self) -> None:
        super().__post_init__()
        align_page(self, self.alignment)

    @classmethod
    def merge(cls, specs: Sequence[KVCacheSpec]) -> KVCacheSpec | None:
        """One MLA spec for layers of equal pages and roles; notes of windows and the alignment are dropped.

        vllm 0.33.0 v1/kv_cache_interface.py:750.
        """
        first = specs[0]
        if not isinstance(first, MLAAttentionSpec) or not all(isinstance(spec, MLAAttentionSpec) for spec in specs):
            return None
        if any(getattr(spec, name) != getattr(first, name) for spec in specs for name in _MUST_AGREE):
            return None
        return replace(first, sliding_window=None, attention_chunk_size=None, alignment=None)


@dataclass(frozen=True)
class HiddenStateCacheSpec(MLAAttentionSpec):
    """A layer that stores hidden states for a client; it always has a group of its own.

    vllm 0.33.0 v1/kv_cache_interface.py:809.
    """

    kind: ClassVar[Kind] = "hidden_state"
