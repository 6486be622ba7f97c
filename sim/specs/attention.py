"""Specs that store something for every token: the page of keys and values."""

from __future__ import annotations

from dataclasses import dataclass, field
from fractions import Fraction
from typing import Final

from sim.specs.base import KVCacheSpec
from sim.units import dtype_bytes

# Bytes per (token, head) cell of the two inline float32 scales: vllm 0.33.0 packs them behind K and V in the page.
_INLINE_SCALE_BYTES: Final = 8

# Rows of a fixed format, whatever the head size: 512 fp8 values, four float32 scales and 64 bfloat16 rotary ones.
_ROW_BYTES: Final = {"fp8_ds_mla": 656}


def state_content_bytes(head_size: int, head_size_v: int, dtype: str) -> int:
    """Bytes one token of one KV head takes: K and V, plus the inline scales of the per-token-head dtypes.

    >>> state_content_bytes(128, 128, "bfloat16"), state_content_bytes(128, 128, "fp8")
    (512, 256)
    >>> state_content_bytes(64, 64, "int8_per_token_head"), state_content_bytes(64, 64, "int4_per_token_head")
    (136, 72)
    >>> state_content_bytes(576, 0, "bfloat16"), state_content_bytes(576, 0, "fp8_ds_mla")
    (1152, 656)
    >>> state_content_bytes(128, 128, "nvfp4")  # 128 halves of a byte and 8 scales of a byte, twice
    144
    """
    if dtype in _ROW_BYTES:
        return _ROW_BYTES[dtype]
    if dtype == "nvfp4":
        return sum(size // 2 + size // 16 for size in (head_size, head_size_v))
    if dtype == "int4_per_token_head":
        return head_size // 2 + head_size_v // 2 + _INLINE_SCALE_BYTES
    content = (head_size + head_size_v) * dtype_bytes(dtype)
    return content + _INLINE_SCALE_BYTES if dtype.endswith("_per_token_head") else content


@dataclass(frozen=True)
class AttentionSpec(KVCacheSpec):
    """The fields and the page of all kinds of attention (vllm 0.33.0 v1/kv_cache_interface.py:552-601).

    ``head_size`` and ``head_size_v`` in elements (V as wide as K unless given). ``state_bytes`` replaces what a token
    of one head takes, where a kernel packs it in a way of its own. ``tokens_per_state``: tokens that share one stored
    state, or a fraction when one token has several.
    """

    num_kv_heads: int
    head_size: int
    dtype: str
    head_size_v: int | None = None
    state_bytes: int | None = field(default=None, kw_only=True)
    tokens_per_state: int | Fraction = field(default=1, kw_only=True)
    dcp_sharded: bool = field(default=True, kw_only=True)

    def __post_init__(self) -> None:
        if self.head_size_v is None:
            object.__setattr__(self, "head_size_v", self.head_size)

    @property
    def unpadded_page_size_bytes(self) -> int:
        """Bytes of one layer's share of one block, without padding.

        >>> from sim.specs import MLAAttentionSpec
        >>> compressed = MLAAttentionSpec(64, 1, 512, "bfloat16", tokens_per_state=4)
        >>> compressed.unpadded_page_size_bytes  # 16 states of 1,024 bytes
        16384
        """
        return self.num_kv_heads * int(self.block_size // self.tokens_per_state) * self.content_bytes

    @property
    def content_bytes(self) -> int:
        """Bytes of one stored state of one head."""
        if self.state_bytes is not None:
            return self.state_bytes
        head_size_v = self.head_size if self.head_size_v is None else self.head_size_v
        return state_content_bytes(self.head_size, head_size_v, self.dtype)

    @property
    def tokens_per_compressed_state(self) -> int:
        """Tokens that share one stored state, 1 unless states are compressed."""
        return self.tokens_per_state if isinstance(self.tokens_per_state, int) else 1
