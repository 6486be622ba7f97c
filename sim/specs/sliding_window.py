"""Sliding-window attention: the last ``sliding_window - 1`` computed tokens are kept, and what is in flight."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar

from sim.specs.attention import AttentionSpec
from sim.specs.base import Kind, KVCacheSpec
from sim.specs.mla import align_page
from sim.units import cdiv

_AGREE = (
    *("tokens_per_state", "sliding_window", "extra_retained_tokens", "bounded_replay", "dtype"),
    *("block_stride_alignment", "dcp_sharded"),
)
"""What MLA windows must agree on to share a group."""


@dataclass(frozen=True)
class SlidingWindowSpec(AttentionSpec):
    """A layer that reads a window of ``sliding_window`` tokens, the one being computed included.

    ``extra_retained_tokens`` more are kept below it, where several draft modules may compute the end of a prompt again.
    Rules: vllm 0.33.0 v1/kv_cache_interface.py:901-965 and v1/core/single_type_kv_cache_manager.py:1148.
    """

    sliding_window: int = field(kw_only=True)
    extra_retained_tokens: int = field(default=0, kw_only=True)

    kind: ClassVar[Kind] = "sliding_window"

    def max_admission_blocks(
        self, max_in_flight_tokens: int, max_model_len: int, *, dcp_world_size: int = 1, max_encoder_tokens: int = 0
    ) -> int:
        """Most blocks one request of ``max_model_len`` tokens is charged for.

        The last ``sliding_window - 1`` computed tokens and all tokens in flight, never more than the request has; one
        block more because the window need not begin at a block's edge.

        >>> SlidingWindowSpec(16, 8, 64, "bfloat16", sliding_window=128).max_admission_blocks(16384, 131072)
        1033
        """
        del dcp_world_size, max_encoder_tokens
        kept = self.sliding_window - 1 + self.extra_retained_tokens
        return cdiv(min(kept + max_in_flight_tokens, max_model_len), self.block_size) + 1

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
        return max(0, num_computed_tokens - self.sliding_window + 1 - self.extra_retained_tokens)

    def is_uniform_with(self, specs: Sequence[KVCacheSpec]) -> bool:
        """Whether all have this window, MLA or not."""
        return all(isinstance(spec, SlidingWindowSpec) and spec.sliding_window == self.sliding_window for spec in specs)


@dataclass(frozen=True)
class SlidingWindowMLASpec(SlidingWindowSpec):
    """A window over MLA's latent vectors (vllm 0.33.0 v1/kv_cache_interface.py:1008).

    ``alignment`` rounds the page up, in bytes. With ``bounded_replay`` the group takes no part in prefix caching: a
    request that hits computes its last window again.
    """

    head_size_v: int | None = 0
    alignment: int | None = field(default=None, kw_only=True)
    bounded_replay: bool = field(default=False, kw_only=True)

    kind: ClassVar[Kind] = "sliding_window_mla"

    def __post_init__(self) -> None:
        super().__post_init__()
        align_page(self, self.alignment)

    @property
    def prefix_cacheable(self) -> bool:
        """Whether the group takes part in prefix caching."""
        return not self.bounded_replay

    @property
    def prefix_replay_tokens(self) -> int:
        """Tokens at the end of a hit that are computed again: a window's worth (v1/kv_cache_interface.py:1032)."""
        return self.sliding_window if self.bounded_replay else 0

    @classmethod
    def merge(cls, specs: Sequence[KVCacheSpec]) -> KVCacheSpec | None:
        """The first of the specs without its alignment, where they agree in window, dtype and policy; None if not.

        Heads and sizes are not compared (vllm 0.33.0 v1/kv_cache_interface.py:1036).
        """
        members = [spec for spec in specs if isinstance(spec, SlidingWindowMLASpec)]
        if len(members) < len(specs) or len({tuple(getattr(spec, name) for name in _AGREE) for spec in members}) > 1:
            return None
        return replace(members[0], alignment=None)

    def is_uniform_with(self, specs: Sequence[KVCacheSpec]) -> bool:
        """Whether all are MLA windows of this size with this way of replay."""
        return all(
            isinstance(spec, SlidingWindowMLASpec)
            and (spec.sliding_window, spec.bounded_replay) == (self.sliding_window, self.bounded_replay)
            for spec in specs
        )
