"""The check of memory: true plans are confirmed in every layout, wrong ones are refuted."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from gpu_check.claims import Verdict
from gpu_check.memory import fitting, probes
from gpu_check.memory.buffers import Buffers
from gpu_check.memory.check import check_memory, pool_of
from gpu_check.memory.layout import LayerPlace, layer_places
from sim.capacity import request_blocks
from sim.planning import KVCachePlan
from sim.specs import (
    ChunkedLocalAttentionSpec,
    FullAttentionSpec,
    MLAAttentionSpec,
    SlidingWindowSpec,
    Spec,
    resident_blocks,
)
from tests.gpu_check.cases import CPU, TOY, case_of, refuted, verdicts

MODELS: dict[str, tuple[Any, dict[str, Any]]] = {
    "windows": ("gemma-3-1b", {"max_model_len": 1024}),
    "sinks in the weights": ("gpt-oss-20b", {"max_model_len": 2048, "tensor_parallel_size": 8}),
    "all full": ("qwen3-0.6b", {"max_model_len": 1024, "tensor_parallel_size": 8}),
    "two block sizes": ("gemma-4-e2b", {"max_model_len": 1024}),
    "chunks": ("llama-4-scout", {"max_model_len": 1024, "tensor_parallel_size": 8}),
    "latent": ("deepseek-v2-lite", {"max_model_len": 1024}),
    "pages of several sizes": ("deepseek-v4-flash", {"max_model_len": 512, "tensor_parallel_size": 8}),
    "padded states": ("granite-4.0-h-small", {"max_model_len": 1024, "tensor_parallel_size": 8}),
    "states beside latent": ("kimi-linear-48b-a3b", {"max_model_len": 2048, "tensor_parallel_size": 8}),
    "pipeline": ("gemma-3-1b", {"max_model_len": 1024, "pipeline_parallel_size": 2}),
}


@pytest.mark.parametrize("name", MODELS)
def test_plans_of_real_models_are_confirmed(name: str) -> None:
    model, flags = MODELS[name]
    flags = {"max_num_batched_tokens": 1024, "max_num_seqs": 16, **flags}
    case = case_of(model, 700, engine=flags)
    claims = check_memory(case, CPU)
    assert refuted(claims) == []
    assert verdicts(claims)["bytes of the pool"] is Verdict.CONFIRMED
    assert [claim.verdict for claim in claims].count(Verdict.CONFIRMED) >= 6


@pytest.mark.parametrize("layout", ["LBHNC", "LBNHC", "LHBNC", "BLHNC", "BLNHC", "BHLNC"])
def test_every_layout_is_confirmed(layout: str) -> None:
    model = {**TOY, "num_kv_heads": 4, "head_size": 8}
    assert refuted(check_memory(case_of(model, 500, engine={"kv_cache_layout": layout}), CPU)) == []


def test_padding_leaves_bytes_unused() -> None:
    model, flags = MODELS["padded states"]
    case = case_of(model, 700, engine={"max_num_batched_tokens": 1024, "max_num_seqs": 16, **flags})
    claims = {claim.claim: claim.measured for claim in check_memory(case, CPU)}
    (filled,) = (measured for words, measured in claims.items() if words.startswith("content of all layers"))
    whole = claims["bytes of the pool"]
    assert isinstance(whole, int)
    assert isinstance(filled, int)
    assert 0.9 * len(case.plan.groups) * whole < filled < len(case.plan.groups) * whole


def test_a_pool_beyond_the_budget_is_cut_and_said_so() -> None:
    pool = pool_of(case_of(TOY, 10_000, budget=1_000_000))
    assert (pool.num_blocks, pool.num_bytes) == (1_000_000 // pool.block_bytes, 122 * 8192)
    assert "122 of the scenario's 10,000 blocks" in pool.note


# --- wrong places are refuted ---


def buffers_with(change: Any) -> tuple[Buffers, KVCachePlan]:
    """The toy's buffers with a change made to the places of its layers."""
    case = case_of(TOY, 300)
    pool = pool_of(case)
    places = layer_places(pool.groups, pool.num_blocks, case.engine.kv_cache_layout, pool.block_bytes)
    return Buffers(change(places), pool.num_bytes, "cpu"), case.plan


def moved(position: int, by: int) -> Any:
    """A change that moves one layer by some bytes."""

    def change(places: tuple[LayerPlace, ...]) -> list[LayerPlace]:
        return [
            replace(place, offset=place.offset + by) if number == position else place
            for number, place in enumerate(places)
        ]

    return change


def test_a_layer_over_its_neighbour_is_refuted() -> None:
    buffers, plan = buffers_with(moved(1, -4096))
    assert probes.filled_bytes(buffers, plan.groups).verdict is Verdict.REFUTED


def test_a_group_that_is_a_block_off_is_refuted() -> None:
    buffers, plan = buffers_with(moved(2, 4096))
    assert probes.filled_bytes(buffers, plan.groups).verdict is Verdict.REFUTED
    assert probes.foreign_bytes(buffers).verdict is Verdict.REFUTED
    assert probes.shared_regions(buffers, plan.groups).verdict is Verdict.REFUTED


def test_true_places_pass_the_same_probes() -> None:
    buffers, plan = buffers_with(list)
    found = (probes.filled_bytes(buffers, plan.groups), probes.foreign_bytes(buffers))
    assert [claim.verdict for claim in found] == [Verdict.CONFIRMED] * 2


def test_a_block_given_to_two_requests_is_refuted(monkeypatch: pytest.MonkeyPatch) -> None:
    buffers, plan = buffers_with(list)
    engine = case_of(TOY, 300).engine
    assert fitting.requests_that_fit(buffers, plan, engine, 112).verdict is Verdict.CONFIRMED
    taken = fitting._taken

    def twice(num_blocks: int, needs: Any) -> list[list[list[int]]]:
        tables = taken(num_blocks, needs)
        tables[1][0][0] = tables[0][2][0]
        return tables

    monkeypatch.setattr(fitting, "_taken", twice)
    claim = fitting.requests_that_fit(buffers, plan, engine, 112)
    assert claim.verdict is Verdict.REFUTED
    assert claim.note.startswith("1 requests were overwritten")


@pytest.mark.parametrize("off", [-1, 1])
def test_a_simulator_that_counts_a_block_wrong_is_refuted(off: int, monkeypatch: pytest.MonkeyPatch) -> None:
    buffers, plan = buffers_with(list)

    def wrong(*arguments: Any) -> Any:
        first, *rest = request_blocks(*arguments)
        return [first._replace(resident_blocks=first.resident_blocks + off), *rest]

    monkeypatch.setattr(fitting, "request_blocks", wrong)
    claim = fitting.requests_that_fit(buffers, plan, case_of(TOY, 300).engine, 112)
    assert claim.verdict is Verdict.REFUTED


@pytest.mark.parametrize(
    "spec",
    [
        FullAttentionSpec(16, 1, 64, "bfloat16"),
        MLAAttentionSpec(64, 1, 576, "bfloat16"),
        SlidingWindowSpec(16, 1, 64, "bfloat16", sliding_window=33),
        SlidingWindowSpec(8, 1, 64, "bfloat16", sliding_window=1),
        ChunkedLocalAttentionSpec(16, 1, 64, "bfloat16", attention_chunk_size=64),
    ],
)
def test_blocks_that_the_mask_reads_are_those_the_simulator_keeps(spec: Spec) -> None:
    for tokens in range(1, 300):
        assert len(fitting.read_blocks(spec, tokens)) == resident_blocks(spec, tokens), tokens


def test_views_hold_what_is_written_through_them() -> None:
    buffers, _ = buffers_with(list)
    place = buffers.places[0]
    keys, values = buffers.keys_values(place)
    assert keys.shape == values.shape == (300, 16, 1, 64)
    values[7, 3, 0] = torch.arange(64, dtype=torch.bfloat16)
    raw = buffers.raw.view(torch.bfloat16)
    start = place.address(7, 0, 3, 128) // 2
    assert raw[start : start + 64].tolist() == np.arange(64).tolist()


needs_cuda = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device: none here")


@needs_cuda
def test_on_a_gpu_free_memory_and_the_largest_pool_are_as_predicted() -> None:
    from gpu_check.device import choose_device

    claims = check_memory(case_of("gemma-3-1b", 20_000, budget=4 << 30), choose_device("cuda"))
    assert {claim.verdict for claim in claims} == {Verdict.CONFIRMED}
