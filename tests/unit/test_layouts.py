"""Layouts that have no place for a plan's pages are refused, as vLLM refuses them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sim.engine_config import EngineConfig
from sim.errors import RefusalError
from sim.planning import KVCachePlan, Memory, plan_layers
from sim.specs import FullAttentionSpec

FULL = FullAttentionSpec(16, 2, 64, "bfloat16")


def padded_plan(layout: str, heads: int) -> KVCachePlan:
    spec = replace(FULL, num_kv_heads=heads, page_size_padded=9000)
    engine = EngineConfig(max_model_len=64, max_num_batched_tokens=64, max_num_seqs=2, kv_cache_layout=layout)
    return plan_layers({"layers.0": spec}, engine, Memory(num_gpu_blocks_override=50))


def test_padding_needs_a_layout_that_keeps_a_page_together() -> None:
    for layout, heads in (("LBHNC", 2), ("BLNHC", 2), ("LHBNC", 1), ("BHLNC", 1)):
        assert padded_plan(layout, heads).block_bytes == 9000
    for layout in ("LHBNC", "BHLNC"):
        with pytest.raises(RefusalError, match="has no place for the padding of pages of 9000 bytes"):
            padded_plan(layout, 2)
