"""What a request costs: the three numbers of each group, and capacity against length."""

from __future__ import annotations

from typing import Any

import pytest

from sim.capacity import capacity_curve, peak_blocks, request_blocks
from sim.engine_config import EngineConfig
from sim.errors import InputError
from sim.models import load_model, model_from_mapping
from sim.planning import Memory, plan_kv_cache
from sim.specs import FullAttentionSpec, SlidingWindowSpec, Spec, resident_blocks
from sim.units import cdiv

TOY = model_from_mapping(
    {
        "layers": [{"kind": "full", "count": 10}, {"kind": "sliding_window", "count": 20, "window": 32}],
        "num_kv_heads": 2,
        "head_size": 64,
        "max_model_len": 4096,
    }
)
ROOMY = Memory(num_gpu_blocks_override=10_000)


def engine(**flags: Any) -> EngineConfig:
    """Flags for requests of at most 4,096 tokens in chunks of 64, one batch in flight, unless given otherwise."""
    return EngineConfig(
        **{"max_model_len": 4096, "max_num_batched_tokens": 64, "max_num_seqs": 8, "async_scheduling": False} | flags
    )


def numbers(flags: EngineConfig, tokens: int) -> list[tuple[int, ...]]:
    """Resident, peak and admission blocks of the toy's groups: full, window, window."""
    return [tuple(blocks) for blocks in request_blocks(plan_kv_cache(TOY, flags, ROOMY), flags, tokens)]


def test_the_toy_in_one_chunk() -> None:
    assert numbers(engine(max_num_batched_tokens=2048), 112) == [(7, 7, 7), (2, 7, 8), (2, 7, 8)]


def test_the_toy_in_chunks_of_64() -> None:
    assert numbers(engine(), 112) == [(7, 7, 7), (2, 5, 7), (2, 5, 7)]  # 31 of the first 64 tokens and 48 more
    assert numbers(engine(), 1024) == [(64, 64, 64), (2, 6, 7), (2, 6, 7)]


def test_async_scheduling_holds_a_chunk_longer() -> None:
    assert numbers(engine(async_scheduling=True), 1024) == [(64, 64, 64), (2, 10, 11), (2, 10, 11)]


def test_stages_hold_a_chunk_each() -> None:
    assert numbers(engine(pipeline_parallel_size=2, async_scheduling=True), 1024)[1] == (2, 14, 15)


def test_admission_at_max_model_len_makes_the_printed_concurrency() -> None:
    flags = engine(async_scheduling=True)
    plan = plan_kv_cache(TOY, flags, ROOMY)
    charged = [blocks.admission_blocks for blocks in request_blocks(plan, flags, 4096)]
    assert tuple(charged) == plan.admission_blocks
    assert plan.max_concurrency == 10_000 / sum(charged)


@pytest.mark.parametrize("tokens", [0, -1, 4097])
def test_lengths_out_of_range(tokens: int) -> None:
    with pytest.raises(InputError, match=r"a request has 1 to 4096 tokens \(max_model_len\)"):
        numbers(engine(), tokens)


SPECS: tuple[Spec, ...] = (
    FullAttentionSpec(16, 2, 64, "bfloat16"),
    *(
        SlidingWindowSpec(block_size, 2, 64, "bfloat16", sliding_window=window)
        for block_size in (1, 3, 16)
        for window in (1, 2, 15, 16, 17, 33, 100)
    ),
)


def slow_peak(spec: Spec, chunk: int, lag: int, tokens: int) -> int:
    """Every chunk in turn: free behind the window of what is processed, take the chunk's blocks, look."""
    held = set[int]()
    most = taken = 0
    for step in range(1, cdiv(tokens, chunk) + 1):
        processed = max(0, step - lag) * chunk
        held -= set(range(spec.num_skipped_tokens(processed) // spec.block_size))
        needed = cdiv(min(step * chunk, tokens), spec.block_size)
        held |= set(range(taken, needed))
        taken = needed
        most = max(most, len(held))
    return most


@pytest.mark.parametrize("spec", SPECS, ids=lambda spec: f"{spec.block_size}-{spec.sliding_window}")
@pytest.mark.parametrize(("chunk", "asynchronous"), [(1, True), (7, False), (10, True), (16, False), (64, True)])
def test_the_peak_is_found_without_walking_every_chunk(spec: Spec, chunk: int, asynchronous: bool) -> None:
    flags = engine(max_num_batched_tokens=chunk, max_num_seqs=1, async_scheduling=asynchronous)
    for tokens in (1, 2, 15, 16, 17, 99, 100, 333, 1024, 1031):
        peak = peak_blocks(spec, flags, tokens)
        assert peak == slow_peak(spec, chunk, flags.max_concurrent_batches, tokens)
        assert peak <= spec.max_admission_blocks(flags.max_in_flight_tokens, tokens)
        assert peak >= resident_blocks(spec, tokens)


def test_the_curve_of_gemma_3_27b() -> None:
    flags = EngineConfig(max_model_len=131072, max_num_batched_tokens=8192, max_num_seqs=1024)
    curve = capacity_curve(load_model("gemma-3-27b"), flags, Memory(None, 40 << 30), [512, 16384, 131072])
    assert [point.resident_blocks for point in curve.points] == [224, 1408, 8576]
    assert [point.peak_blocks for point in curve.points] == [224, 7168, 14720]
    assert [point.admission_blocks for point in curve.points] == [230, 7174, 14726]
    assert [round(point.max_concurrency, 2) for point in curve.points] == [142.47, 4.57, 2.23]
    assert [round(point.all_full_max_concurrency or 0, 2) for point in curve.points] == [165.16, 5.16, 0.65]
    assert [round(point.saving or 0, 3) for point in curve.points] == [-0.129, 0.778, 0.831]
    assert (curve.break_even_tokens, curve.break_even_resident_tokens) == (20097, 1183)


def test_break_even_is_the_first_length_that_wins() -> None:
    flags = engine(max_num_batched_tokens=16)
    curve = capacity_curve(TOY, flags, ROOMY, range(1, 200))
    wins = [p.tokens for p in curve.points if p.max_concurrency > (p.all_full_max_concurrency or 0)]
    leaner = [p.tokens for p in curve.points if (p.saving or 0) > 0]
    assert curve.break_even_tokens == wins[0]
    assert curve.break_even_resident_tokens == leaner[0]


def test_a_pool_given_in_blocks_is_the_same_bytes_on_both_sides() -> None:
    curve = capacity_curve(TOY, engine(), ROOMY, [64])
    assert curve.all_full is not None
    assert (curve.hybrid.num_blocks, curve.all_full.num_blocks) == (10_000, 3333)
    assert curve.all_full.block_bytes == 3 * curve.hybrid.block_bytes


def test_the_hybrid_side_is_hybrid_whatever_the_flag_says() -> None:
    curve = capacity_curve(TOY, engine(disable_hybrid_kv_cache_manager=True), ROOMY, [64])
    assert len(curve.hybrid.groups) == 3


def test_one_kind_of_layer_has_nothing_to_break_even() -> None:
    curve = capacity_curve(load_model("mistral-7b-v0.1"), engine(), ROOMY, [4096])
    assert (curve.break_even_tokens, curve.break_even_resident_tokens, curve.points[0].saving) == (None, None, 0.0)


def test_where_the_hybrid_manager_cannot_be_turned_off_only_hybrid_is_drawn() -> None:
    kinds = [{"kind": "sliding_window", "count": 2, "window": window} for window in (32, 64)]
    model = model_from_mapping({"layers": kinds, "num_kv_heads": 2, "head_size": 64, "max_model_len": 4096})
    curve = capacity_curve(model, engine(), ROOMY, [64])
    assert curve.all_full is None
    assert curve.points[0].all_full_blocks is None


def test_columns() -> None:
    columns = capacity_curve(TOY, engine(), ROOMY, [64, 128]).columns()
    assert columns["tokens"] == [64, 128]
    assert columns["group_1_resident_blocks"] == [2, 2]
    assert list(columns)[-1] == "group_2_admission_blocks"


def test_an_encoder_is_charged_a_batch_and_holds_its_longest_input() -> None:
    """Whisper: 1,500 tokens are 94 blocks, of the 512 that a batch of 8,192 would be."""
    flags = EngineConfig(max_model_len=448, max_num_batched_tokens=8192, max_num_seqs=8, enable_prefix_caching=False)
    plan = plan_kv_cache(load_model("whisper-large-v3"), flags, Memory(available_kv_cache_memory_gib=4))
    cross = request_blocks(plan, flags, 448)[1]
    assert (cross.resident_blocks, cross.peak_blocks, cross.admission_blocks) == (94, 94, 512)
