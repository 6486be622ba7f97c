"""The engine's flags: vLLM's defaults, its budgets by GPU, and what it refuses."""

from __future__ import annotations

from typing import Any

import pytest

from sim.engine_config import EngineConfig, default_budgets
from sim.errors import InputError, RefusalError
from sim.hardware import find_gpu, gpus

ENGINE: dict[str, Any] = {"max_model_len": 4096, "max_num_batched_tokens": 2048, "max_num_seqs": 256}


def test_defaults_of_vllm() -> None:
    engine = EngineConfig(**ENGINE)
    assert (engine.block_size, engine.kv_cache_dtype, engine.watermark) == (None, "auto", 0.0)
    assert (engine.prefix_cache_retention_interval, engine.scheduler_reserve_full_isl) == (0, True)
    assert (engine.async_scheduling, engine.enable_prefix_caching, engine.scheduling_policy) == (True, True, "fcfs")


@pytest.mark.parametrize(
    ("stages", "asynchronous", "batches"), [(1, True, 2), (1, False, 1), (2, True, 3), (2, False, 2), (4, True, 5)]
)
def test_batches_in_flight(stages: int, asynchronous: bool, batches: int) -> None:
    engine = EngineConfig(**ENGINE, pipeline_parallel_size=stages, async_scheduling=asynchronous)
    assert engine.max_concurrent_batches == batches
    assert engine.max_in_flight_tokens == batches * 2048


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"max_num_batched_tokens": 255}, "engine.max_num_batched_tokens: 255 is smaller than max_num_seqs (256)"),
        (
            {"enable_chunked_prefill": False},
            "engine.max_num_batched_tokens: 2048 is smaller than max_model_len (4096) while chunked prefill is off",
        ),
        ({"max_num_active_seqs": 257}, "engine.max_num_active_seqs: 257 is greater than max_num_seqs (256)"),
        ({"mamba_block_size": 64, "enable_prefix_caching": False}, "engine.mamba_block_size: 64 can only be set with"),
        ({"decode_context_parallel_size": 2}, "engine.decode_context_parallel_size: 2 does not divide"),
        (
            {"speculative_method": "eagle", "num_speculative_tokens": 2048},
            "engine.max_num_batched_tokens: 2048 leaves no room beside 2048 draft tokens",
        ),
    ],
)
def test_refusals_of_vllm(change: dict[str, Any], message: str) -> None:
    with pytest.raises(RefusalError) as caught:
        EngineConfig(**ENGINE | change)
    assert str(caught.value).startswith(message)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"max_model_len": 0}, "engine.max_model_len: must be an integer from 1 to 2147483647, got 0"),
        ({"max_model_len": 1 << 31}, "engine.max_model_len: must be an integer from 1 to 2147483647"),
        ({"block_size": 16.0}, "engine.block_size: must be an integer from 1"),
        ({"max_num_seqs": True}, "engine.max_num_seqs: must be an integer from 1"),
        ({"prefix_match_unit": 0}, "engine.prefix_match_unit: must be an integer from 1"),
        ({"mamba_cache_mode": "all"}, "engine.mamba_cache_mode: must be one of none, align, got 'all'"),
        ({"speculative_method": "eagel"}, "engine.speculative_method: must be one of eagle"),
        (
            {"speculative_method": "eagle"},
            "engine.num_speculative_tokens: speculative_method and num_speculative_token",
        ),
        ({"kv_cache_layout": "LNBHC"}, "engine.kv_cache_layout: must be one of LBHNC"),
        ({"prefix_cache_retention_interval": -1}, "engine.prefix_cache_retention_interval: must be an integer from 0"),
        ({"enable_prefix_caching": 1}, "engine.enable_prefix_caching: must be true or false, got 1"),
        ({"watermark": 1.0}, "engine.watermark: must be at least 0 and below 1, got 1.0"),
        ({"watermark": float("nan")}, "engine.watermark: must be at least 0 and below 1, got nan"),
        ({"watermark": "1"}, "engine.watermark: must be at least 0 and below 1, got '1'"),
        ({"scheduling_policy": "lifo"}, "engine.scheduling_policy: must be one of fcfs, priority, got 'lifo'"),
        ({"kv_cache_dtype": "fp8_e4m4"}, "engine.kv_cache_dtype: must be one of auto, float16"),
        ({"tensor_parallel_size": 0}, "engine.tensor_parallel_size: must be an integer from 1"),
    ],
)
def test_values_out_of_range(change: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError) as caught:
        EngineConfig(**ENGINE | change)
    assert str(caught.value).startswith(message)
    assert not isinstance(caught.value, RefusalError)


def test_no_retention_interval_is_allowed() -> None:
    assert EngineConfig(**ENGINE, prefix_cache_retention_interval=None).prefix_cache_retention_interval is None


@pytest.mark.parametrize(
    ("gpu", "server", "offline"),
    [
        ("H100-80GB", (8192, 1024), (16384, 1024)),
        ("H200-141GB", (8192, 1024), (16384, 1024)),
        ("H20-96GB", (8192, 1024), (16384, 1024)),
        ("B200-180GB", (16384, 1024), (16384, 1024)),
        ("A100-80GB", (2048, 256), (8192, 256)),
        ("L40S-48GB", (2048, 256), (8192, 256)),
        ("GB10-128GB", (2048, 256), (8192, 256)),
    ],
)
def test_default_budgets_by_gpu(gpu: str, server: tuple[int, int], offline: tuple[int, int]) -> None:
    assert default_budgets(find_gpu(gpu), "server", 131072) == server
    assert default_budgets(find_gpu(gpu), "offline", 131072) == offline


def test_a_gpu_nobody_can_ask_is_a_small_one() -> None:
    assert default_budgets(None, "server", 131072) == (2048, 256)


def test_what_is_given_bends_the_other_default() -> None:
    h100 = find_gpu("H100-80GB")
    assert default_budgets(h100, "server", 4096, max_num_batched_tokens=512) == (512, 512)
    assert default_budgets(h100, "server", 512, max_num_seqs=4) == (2048, 4)
    assert default_budgets(h100, "server", 131072, enable_chunked_prefill=False) == (131072, 1024)


def test_an_unknown_usage() -> None:
    with pytest.raises(InputError, match=r"hardware\.usage: must be one of server, offline, got 'servre'"):
        default_budgets(None, "servre", 4096)


@pytest.mark.parametrize(
    "name",
    ["H100-80GB", "H200-141GB", "A100-80GB", "A100-40GB", "L40S-48GB", "L4-24GB", "A10-24GB", "B200-180GB", "H20-96GB"],
)
def test_gpus_of_the_catalogue(name: str) -> None:
    gpu = find_gpu(name)
    assert f"{gpu.mem_gb:g}GB" == name.partition("-")[2]
    assert gpu.source


def test_there_are_25_accelerators_each_with_its_source() -> None:
    accelerators = [gpu for gpu in gpus().values() if gpu.capability != "cpu"]
    assert len(accelerators) >= 25
    for gpu in accelerators:
        assert gpu.source
        assert gpu.confidence in ("high", "medium", "low")
        assert gpu.usable_gib <= gpu.mem_gb  # no GB as sold is more than a GiB
        assert gpu.fp8_tflops is None or 1.9 * gpu.bf16_tflops <= gpu.fp8_tflops <= 2.1 * gpu.bf16_tflops


def test_a_gpu_without_fp8() -> None:
    assert find_gpu("A100-80GB").fp8_tflops is None
    assert all(gpu.mem_bw_gbs > 0 and gpu.bf16_tflops > 0 and gpu.link_gbs > 0 for gpu in gpus().values())


def test_an_unknown_gpu_names_the_nearest() -> None:
    with pytest.raises(InputError, match=r"hardware.gpu: unknown GPU 'H100-80' \(nearest: 'H100-80GB'\)"):
        find_gpu("H100-80", where="hardware.gpu")


@pytest.mark.parametrize(
    ("method", "lookahead", "prefill", "hashed", "drops"),
    [("eagle", 3, 1, 1, True), ("mtp", 3, 3, 3, True), ("dflash", 4, 1, 0, False), ("draft_model", 3, 0, 0, False)],
)
def test_what_a_draft_looks_ahead(method: str, lookahead: int, prefill: int, hashed: int, drops: bool) -> None:
    draft: dict[str, Any] = {"speculative_method": method, "num_speculative_tokens": 3, "num_mtp_modules": 3}
    engine = EngineConfig(**ENGINE, **draft)
    assert (engine.num_lookahead_tokens, engine.num_prefill_lookahead_tokens) == (lookahead, prefill)
    assert (engine.num_hash_lookahead_tokens, engine.drops_last_block) == (hashed, False)
    assert EngineConfig(**ENGINE, **draft, disable_lookahead_block_hashes=True).drops_last_block == drops


def test_a_draft_that_queries_in_blocks_lets_fewer_requests_run() -> None:
    draft: dict[str, Any] = {"speculative_method": "dflash", "num_speculative_tokens": 15}
    assert EngineConfig(**ENGINE, **draft).max_running_requests == 2048 // 16
    assert EngineConfig(**ENGINE, max_num_active_seqs=9).max_running_requests == 9


def test_default_budgets_on_a_cpu_grow_with_its_ranks_and_double_for_throughput() -> None:
    cpu, h100 = find_gpu("CPU"), find_gpu("H100")
    assert default_budgets(cpu, "server", 131072) == (2048, 128)
    assert default_budgets(cpu, "offline", 131072, world_size=2) == (8192, 512)
    assert default_budgets(h100, "server", 131072, throughput=True) == (16384, 2048)
    assert default_budgets(h100, "server", 131072, throughput=True, max_num_seqs=8) == (16384, 8)
