"""KV cache specs: what one attention layer stores, in pages of one block each.

Two kinds are modelled: full attention, which keeps every token, and sliding-window attention, which keeps the last
``sliding_window - 1`` computed tokens (and whatever is still in flight). Two specs are the same spec when *all* their
fields are equal; grouping, joint look-up and duplicates of one hash depend on that identity.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar, Final, Literal

from sim.units import cdiv, dtype_bytes

Kind = Literal["full_attention", "sliding_window"]

# Bytes per (token, head) cell of the two inline float32 scales: vllm 0.33.0 packs them behind K and V in the page.
_INLINE_SCALE_BYTES: Final = 8


def state_content_bytes(head_size: int, head_size_v: int, dtype: str) -> int:
    """Bytes one token of one KV head takes: K and V, plus the inline scales of the per-token-head dtypes.

    >>> state_content_bytes(128, 128, "bfloat16"), state_content_bytes(128, 128, "fp8")
    (512, 256)
    >>> state_content_bytes(64, 64, "int8_per_token_head"), state_content_bytes(64, 64, "int4_per_token_head")
    (136, 72)
    """
    if dtype == "int4_per_token_head":
        return head_size // 2 + head_size_v // 2 + _INLINE_SCALE_BYTES
    content = (head_size + head_size_v) * dtype_bytes(dtype)
    return content + _INLINE_SCALE_BYTES if dtype.endswith("_per_token_head") else content


@dataclass(frozen=True)
class _AttentionSpec:
    """The fields and the page that both kinds share (vllm 0.33.0 v1/kv_cache_interface.py:552-601).

    ``block_size`` is in tokens, ``head_size`` and ``head_size_v`` in elements (V as wide as K unless given),
    ``page_size_padded`` in bytes (None: the page is as large as its content).
    """

    block_size: int
    num_kv_heads: int
    head_size: int
    dtype: str
    head_size_v: int | None = None
    page_size_padded: int | None = None

    def __post_init__(self) -> None:
        if self.head_size_v is None:
            object.__setattr__(self, "head_size_v", self.head_size)

    @property
    def unpadded_page_size_bytes(self) -> int:
        """Bytes of one layer's share of one block, without padding."""
        head_size_v = self.head_size if self.head_size_v is None else self.head_size_v
        return self.num_kv_heads * self.block_size * state_content_bytes(self.head_size, head_size_v, self.dtype)

    @property
    def page_size_bytes(self) -> int:
        """Bytes of one layer's share of one block."""
        return self.unpadded_page_size_bytes if self.page_size_padded is None else self.page_size_padded


@dataclass(frozen=True)
class FullAttentionSpec(_AttentionSpec):
    """A layer that keeps every token (vllm 0.33.0 v1/kv_cache_interface.py:619).

    ``sliding_window`` is only a note: a window layer that the planner treats as full attention, because the hybrid
    manager is off, still computes with its window but stores all tokens.
    """

    sliding_window: int | None = None

    kind: ClassVar[Kind] = "full_attention"

    def max_admission_blocks(self, max_in_flight_tokens: int, max_model_len: int) -> int:
        """Blocks one request of ``max_model_len`` tokens takes: all of them, whatever is in flight.

        >>> FullAttentionSpec(16, 8, 128, "bfloat16").max_admission_blocks(16384, 131072)
        8192
        """
        del max_in_flight_tokens
        return cdiv(max_model_len, self.block_size)

    def num_skipped_tokens(self, num_computed_tokens: int) -> int:
        """Tokens that attention will not read again: none."""
        del num_computed_tokens
        return 0


@dataclass(frozen=True)
class SlidingWindowSpec(_AttentionSpec):
    """A layer that reads a window of ``sliding_window`` tokens, the one being computed included.

    Rules: vllm 0.33.0 v1/kv_cache_interface.py:901-965 and v1/core/single_type_kv_cache_manager.py:1148.
    """

    sliding_window: int = field(kw_only=True)

    kind: ClassVar[Kind] = "sliding_window"

    def max_admission_blocks(self, max_in_flight_tokens: int, max_model_len: int) -> int:
        """Most blocks one request of ``max_model_len`` tokens is charged for.

        The last ``sliding_window - 1`` computed tokens and all tokens in flight, never more than the request has; one
        block more because the window need not begin at a block's edge.

        >>> SlidingWindowSpec(16, 8, 64, "bfloat16", sliding_window=128).max_admission_blocks(16384, 131072)
        1033
        """
        num_tokens = min(self.sliding_window - 1 + max_in_flight_tokens, max_model_len)
        return cdiv(num_tokens, self.block_size) + 1

    def num_skipped_tokens(self, num_computed_tokens: int) -> int:
        """Tokens before the window of the next token, which attention will not read again.

        With a window of 4 and 7 tokens computed, token 7 comes next and reads tokens 4, 5, 6 and itself::

            tokens    0 1 2 3 4 5 6 | 7
            skipped   x x x x       |
            window            w w w | w

        >>> spec = SlidingWindowSpec(16, 8, 64, "bfloat16", sliding_window=4)
        >>> [spec.num_skipped_tokens(n) for n in (0, 3, 4, 7)]
        [0, 0, 1, 4]
        """
        return max(0, num_computed_tokens - self.sliding_window + 1)


Spec = FullAttentionSpec | SlidingWindowSpec
"""The KV cache spec of one layer."""


def resident_blocks(spec: Spec, num_tokens: int) -> int:
    """Blocks a request of ``num_tokens`` computed tokens still needs, once everything before the window is freed.

    Window 32, blocks of 16, 112 tokens: 81 tokens are skipped, so five whole blocks go and two stay::

        tokens  0              16     ...      80          96          112
        blocks  |  0  |  1  |  2  |  3  |  4  |     5     |     6     |
        kept                                   [  81 ... 111 are read  ]

    >>> resident_blocks(SlidingWindowSpec(16, 8, 64, "bfloat16", sliding_window=32), 112)
    2
    >>> resident_blocks(FullAttentionSpec(16, 8, 64, "bfloat16"), 112)
    7
    """
    return cdiv(num_tokens, spec.block_size) - spec.num_skipped_tokens(num_tokens) // spec.block_size


def distinct_windows(specs: Sequence[Spec]) -> list[int]:
    """The different windows noted on ``specs``, ascending; layers without one are left out."""
    return sorted({spec.sliding_window for spec in specs if spec.sliding_window is not None})


def merge_specs(specs: Sequence[Spec]) -> Spec | None:
    """The one spec that stands for all of ``specs``, or None when they cannot share a group.

    Equal specs merge; full-attention specs merge too when they differ at most in that some carry the note of one
    window (vllm 0.33.0 v1/kv_cache_interface.py:307 and :663).

    >>> plain = FullAttentionSpec(16, 8, 64, "bfloat16")
    >>> merged = merge_specs([plain, replace(plain, sliding_window=128)])
    >>> merged.sliding_window
    128
    """
    first = specs[0]
    if isinstance(first, SlidingWindowSpec):
        return first if all(spec == first for spec in specs) else None
    windows = distinct_windows(specs)
    merged = replace(first, sliding_window=windows[0] if windows else None)
    for spec in specs:
        if isinstance(spec, SlidingWindowSpec) or replace(spec, sliding_window=merged.sliding_window) != merged:
            return None
    return merged if len(windows) <= 1 else None
