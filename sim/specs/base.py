"""What every KV cache spec answers: how large a page is, what it merges with, what a request is charged.

Two specs are the same spec when they are of one class and *all* their fields are equal, ``is_draft`` left out;
grouping, joint look-up and duplicates of one hash depend on that identity.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar, Literal, Self

from sim.units import cdiv

Kind = Literal[
    "full_attention",
    "mla_attention",
    "sliding_window",
    "sliding_window_mla",
    "mamba",
    "chunked_local_attention",
    "sink_full_attention",
    "cross_attention",
    "rswa",
    "circular_buffer",
    "hidden_state",
]
"""vLLM's own names (vllm 0.33.0 v1/kv_cache_interface.py:183), and ours for the three kinds it leaves unnamed."""


class WindowConflictError(Exception):
    """Full-attention specs with notes of different windows or chunks, ``sizes``, were to share a group.

    vLLM does not catch its own error here, so it stops (vllm 0.33.0 v1/kv_cache_interface.py:651).
    """

    def __init__(self, sizes: Sequence[int]) -> None:
        self.sizes = tuple(sizes)
        super().__init__(f"windows of {', '.join(map(str, sizes))} tokens")


@dataclass(frozen=True, slots=True)
class KernelBlocks:
    """A stride alignment of whole kernel blocks of up to ``tokens`` tokens each."""

    tokens: int


@dataclass(frozen=True)
class KVCacheSpec(ABC):
    """What one layer stores in one block (vllm 0.33.0 v1/kv_cache_interface.py:200).

    ``block_size`` in tokens. ``dcp_sharded``: decode context parallelism deals this cache's tokens out to its ranks.
    ``page_size_padded`` in bytes, None: the page is as large as its content. ``block_stride_alignment``: bytes, or
    kernel blocks, that the distance between two blocks must be a multiple of. ``is_draft``: a draft model's layer.
    """

    block_size: int
    page_size_padded: int | None = field(default=None, kw_only=True)
    dcp_sharded: bool = field(default=False, kw_only=True)
    block_stride_alignment: int | KernelBlocks | None = field(default=None, kw_only=True)
    is_draft: bool = field(default=False, kw_only=True, compare=False)

    kind: ClassVar[Kind]
    fine_grained_hits: ClassVar[bool] = False
    """Whether the group's manager can look prefixes up in units smaller than its block."""

    @property
    @abstractmethod
    def unpadded_page_size_bytes(self) -> int:
        """Bytes of one layer's share of one block, without padding."""

    @property
    def page_size_bytes(self) -> int:
        """Bytes of one layer's share of one block."""
        return self.unpadded_page_size_bytes if self.page_size_padded is None else self.page_size_padded

    @property
    def stride_bytes(self) -> int:
        """Bytes from one block to the next where each layer has a region of its own: the page, aligned.

        vllm 0.33.0 v1/core/kv_cache_planning.py:569.
        """
        alignment = self.stride_alignment_bytes
        return cdiv(self.page_size_bytes, alignment) * alignment

    @property
    def stride_alignment_bytes(self) -> int:
        """Bytes that the distance between blocks is a multiple of; 1 where nothing is asked.

        Kernel blocks ask for something only when the block is not one of them (vllm 0.33.0
        v1/kv_cache_interface.py:224).
        """
        alignment = self.block_stride_alignment
        if not isinstance(alignment, KernelBlocks):
            return alignment or 1
        kernel_block = math.gcd(alignment.tokens, self.block_size)
        return 1 if kernel_block == self.block_size else replace(self, block_size=kernel_block).page_size_bytes

    @property
    def prefix_cacheable(self) -> bool:
        """Whether the group takes part in prefix caching."""
        return True

    @property
    def prefix_replay_tokens(self) -> int:
        """Tokens at the end of a hit that are computed again because this cache is in no prefix cache."""
        return 0

    @property
    def tokens_per_compressed_state(self) -> int:
        """Tokens that share one stored state, 1 unless states are compressed; hits must end between states."""
        return 1

    @abstractmethod
    def max_admission_blocks(
        self, max_in_flight_tokens: int, max_model_len: int, *, dcp_world_size: int = 1, max_encoder_tokens: int = 0
    ) -> int:
        """Most blocks one request of ``max_model_len`` tokens is charged for.

        ``max_encoder_tokens`` is vLLM's ``max_num_encoder_input_tokens``, which only cross attention asks for.
        """

    def table_blocks(self, num_tokens: int, *, dcp_world_size: int = 1, max_encoder_tokens: int = 0) -> int:
        """Entries of the block table of a request of ``num_tokens`` tokens, those freed since included."""
        del max_encoder_tokens
        return cdiv(num_tokens, self.token_span(dcp_world_size))

    def num_skipped_tokens(self, num_computed_tokens: int) -> int:
        """Tokens of which the next one will read nothing, so that their blocks are freed."""
        del num_computed_tokens
        return 0

    def token_span(self, dcp_world_size: int) -> int:
        """Tokens of the request that one block stands for, over all ranks of decode context parallelism.

            block 4, two ranks:   rank 0 | 0 2 4 6 |      one block of the table, 8 tokens
                                  rank 1 | 1 3 5 7 |

        vllm 0.33.0 v1/core/kv_cache_utils.py:740.

        >>> from sim.specs import FullAttentionSpec
        >>> FullAttentionSpec(4, 1, 8, "bfloat16", dcp_sharded=True).token_span(2)
        8
        """
        return self.block_size * (dcp_world_size if self.dcp_sharded else 1)

    @classmethod
    def merge(cls, specs: Sequence[KVCacheSpec]) -> KVCacheSpec | None:
        """The one spec that stands for all of ``specs``, of which the first is of this class; None if there is none.

        Unless a kind knows better, only equal specs merge (vllm 0.33.0 v1/kv_cache_interface.py:307).
        """
        return specs[0] if all(spec == specs[0] for spec in specs) else None

    @abstractmethod
    def is_uniform_with(self, specs: Sequence[KVCacheSpec]) -> bool:
        """Whether all of ``specs`` always need as many blocks as this one; block sizes are equal already."""

    def resized(self, block_size: int) -> Self:
        """The same spec with another block size, in tokens."""
        return replace(self, block_size=block_size)
