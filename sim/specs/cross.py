"""Cross attention of encoder-decoder models: the encoder's output, stored once per request."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from sim.specs.attention import AttentionSpec
from sim.specs.base import Kind, KVCacheSpec
from sim.units import cdiv


@dataclass(frozen=True)
class CrossAttentionSpec(AttentionSpec):
    """A layer that keeps the encoder's tokens, all of them from the first step on; nothing of it is shared.

    vllm 0.33.0 v1/kv_cache_interface.py:1221 and v1/core/single_type_kv_cache_manager.py:2138.
    """

    kind: ClassVar[Kind] = "cross_attention"

    def max_admission_blocks(
        self, max_in_flight_tokens: int, max_model_len: int, *, dcp_world_size: int = 1, max_encoder_tokens: int = 0
    ) -> int:
        """Blocks for the longest input of the encoder, which vLLM takes to be a whole batch.

        >>> CrossAttentionSpec(16, 20, 64, "float16").max_admission_blocks(16384, 448, max_encoder_tokens=8192)
        512
        """
        del max_in_flight_tokens, max_model_len, dcp_world_size
        return cdiv(max_encoder_tokens, self.block_size)

    def table_blocks(self, num_tokens: int, *, dcp_world_size: int = 1, max_encoder_tokens: int = 0) -> int:
        """Blocks of the encoder's tokens; the request's own take none."""
        del num_tokens, dcp_world_size
        return cdiv(max_encoder_tokens, self.block_size)

    def is_uniform_with(self, specs: Sequence[KVCacheSpec]) -> bool:
        """Whether all are cross attention."""
        return all(isinstance(spec, CrossAttentionSpec) for spec in specs)
