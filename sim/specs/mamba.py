"""Layers with a state of constant size: Mamba, linear attention, short convolutions."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Literal

from sim.specs.base import Kind, KVCacheSpec
from sim.units import cdiv, dtype_bytes

MambaCacheMode = Literal["none", "align"]
"""vLLM's ``mamba_cache_mode``: one state per request, or states kept at the edges of blocks for prefix caching."""


@dataclass(frozen=True)
class MambaSpec(KVCacheSpec):
    """A layer whose page is its state, whatever the block size (vllm 0.33.0 v1/kv_cache_interface.py:1094).

    ``shapes`` and ``dtypes`` of the tensors of one state. ``mamba_type`` is the kernel family, as vLLM calls it.
    ``num_speculative_blocks``: states for drafts that may be rejected. ``num_prefill_checkpoint_blocks`` and
    ``prefill_checkpoint_alignment`` (tokens): states a kernel can export from inside a chunk, and where.
    ``tp_replicated``: every tensor-parallel rank holds the whole state.
    """

    shapes: tuple[tuple[int, ...], ...] = field(kw_only=True)
    dtypes: tuple[str, ...] = field(kw_only=True)
    mamba_type: str = field(default="mamba2", kw_only=True)
    mamba_cache_mode: MambaCacheMode = field(default="none", kw_only=True)
    num_speculative_blocks: int = field(default=0, kw_only=True)
    num_prefill_checkpoint_blocks: int = field(default=0, kw_only=True)
    prefill_checkpoint_alignment: int | None = field(default=None, kw_only=True)
    tp_replicated: bool = field(default=False, kw_only=True)

    kind: ClassVar[Kind] = "mamba"
    fine_grained_hits: ClassVar[bool] = True

    @property
    def unpadded_page_size_bytes(self) -> int:
        """Bytes of one state.

        >>> MambaSpec(16, shapes=((3, 8448), (128, 64, 128)), dtypes=("bfloat16", "bfloat16")).unpadded_page_size_bytes
        2147840
        """
        return sum(math.prod(shape) * dtype_bytes(dtype) for shape, dtype in zip(self.shapes, self.dtypes, strict=True))

    def max_admission_blocks(
        self, max_in_flight_tokens: int, max_model_len: int, *, dcp_world_size: int = 1, max_encoder_tokens: int = 0
    ) -> int:
        """States one request is charged for, however long it is.

        One that runs, in align mode the one before it too, one per draft token, and in align mode the exported ones.

        >>> one = {"shapes": ((4,),), "dtypes": ("float32",), "num_prefill_checkpoint_blocks": 1}
        >>> aligned = MambaSpec(16, **one, mamba_cache_mode="align", num_speculative_blocks=2)
        >>> MambaSpec(16, **one).max_admission_blocks(8192, 4096), aligned.max_admission_blocks(8192, 4096)
        (1, 5)
        """
        del max_in_flight_tokens, max_model_len, dcp_world_size, max_encoder_tokens
        if self.mamba_cache_mode == "align":
            return 2 + self.num_speculative_blocks + self.num_prefill_checkpoint_blocks
        return 1 + self.num_speculative_blocks

    def table_blocks(self, num_tokens: int, *, dcp_world_size: int = 1, max_encoder_tokens: int = 0) -> int:
        """One entry per block of tokens, most of them null, and one per draft token."""
        del dcp_world_size, max_encoder_tokens
        return cdiv(num_tokens, self.block_size) + self.num_speculative_blocks

    def num_skipped_tokens(self, num_computed_tokens: int) -> int:
        """All but the last token: the state after it holds everything (v1/core/single_type_kv_cache_manager.py:1971).

        >>> MambaSpec(16, shapes=((4,),), dtypes=("float32",)).num_skipped_tokens(33)
        32
        """
        return max(0, num_computed_tokens - 1)

    def is_uniform_with(self, specs: Sequence[KVCacheSpec]) -> bool:
        """Whether all have pages of this size and as many spare states; shapes may differ."""
        names = (
            *("num_speculative_blocks", "num_prefill_checkpoint_blocks", "prefill_checkpoint_alignment"),
            *("page_size_bytes", "tp_replicated"),
        )
        return all(
            isinstance(spec, MambaSpec) and all(getattr(spec, name) == getattr(self, name) for name in names)
            for spec in specs
        )
