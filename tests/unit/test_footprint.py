"""Where a GPU's memory goes: the estimates against startup logs that print both sides, and what bypasses them."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

import sim.footprint
from sim.engine_config import EngineConfig
from sim.errors import InputError, RefusalError
from sim.footprint import Deployment, activation_bytes, estimate_waterfall, rank_weights
from sim.footprint.overhead import BYTES_PER_LOGIT, BYTES_PER_SORTED_LOGIT, graph_bytes
from sim.hardware import find_gpu
from sim.models import load_model
from sim.units import GIB

MODEL = load_model("llama-3.1-8b")
ENGINE = EngineConfig(max_model_len=16384, max_num_batched_tokens=8192, max_num_seqs=1024)
MEASURED = Path(sim.footprint.__file__).with_name("measured.csv")


def measured() -> list[dict[str, str]]:
    """The startup logs that say where memory went."""
    with MEASURED.open(encoding="utf-8", newline="") as lines:
        return list(csv.DictReader(lines))


@pytest.mark.parametrize("row", measured(), ids=lambda row: "-".join(list(row.values())[:6]))
def test_activations_lie_within_the_spread_they_state(row: dict[str, str]) -> None:
    """What the log leaves beside weights and KV cache; since 0.21 CUDA graphs are part of that."""
    sorts = row["version"].startswith("0.1")
    guess = activation_bytes(
        MODEL,
        max_num_batched_tokens=int(row["max_num_batched_tokens"]),
        max_num_seqs=int(row["max_num_seqs"]),
        num_ranks=int(row["tensor_parallel_size"]),
        vocab_size=int(row["vocab_size"]),
        bytes_per_logit=BYTES_PER_SORTED_LOGIT if sorts else BYTES_PER_LOGIT,
    )
    graphs = graph_bytes(MODEL, enabled=not sorts)
    if row["activation_gib"]:
        found = float(row["activation_gib"]) + float(row["non_torch_gib"])
        assert abs(guess.num_bytes / GIB - found) <= 0.15
    else:
        usable = find_gpu(row["gpu"]).usable_gib * float(row["utilization"])
        found = usable - float(row["weights_gib"]) - float(row["kv_gib"])
        off = abs((guess.num_bytes + graphs.num_bytes) / GIB - found)
        assert off <= (guess.spread_bytes + graphs.spread_bytes) / GIB


@pytest.mark.parametrize(
    ("name", "ranks", "quantization", "printed_gib"),
    [
        ("llama-3.1-8b", 1, None, 14.99),
        ("qwen3-0.6b", 1, None, 1.12),
        ("qwen3-14b", 1, None, 27.51),
        ("qwen3-32b", 1, None, 61.03),
        ("qwen3-32b", 2, None, 30.59),
        ("llama-3.1-70b", 2, "fp8", 33.88),
        ("gpt-oss-20b", 1, None, 13.47),
        ("gpt-oss-120b", 1, None, 65.97),
        ("qwen3.5-35b-a3b", 1, "fp8", 33.31),
        ("gemma-3-1b", 1, None, 1.91),
        ("gemma-3-4b", 1, None, 8.58),
    ],
)
def test_weights_lie_within_the_spread_they_state(
    name: str, ranks: int, quantization: str | None, printed_gib: float
) -> None:
    """What vLLM printed as loaded, in GiB per GPU."""
    guess = rank_weights(load_model(name), tensor_parallel_size=ranks, quantization=quantization)
    assert abs(guess.num_bytes / GIB - printed_gib) <= guess.spread_bytes / GIB


def test_the_waterfall_adds_up_and_says_how_well_it_is_known() -> None:
    fall = estimate_waterfall(MODEL, ENGINE, find_gpu("H100"), Deployment(gpu_memory_utilization=0.9))
    amounts = dict(fall.steps())
    parts = sum(amounts[name].num_bytes for name in ("weights", "activations", "graphs"))
    assert amounts["requested"].num_bytes - parts == amounts["kv_cache"].num_bytes
    assert {amount.source for amount in amounts.values()} == {"estimate"}
    assert fall.kv_cache.spread_bytes > fall.weights.spread_bytes > 0 if fall.weights else False


def test_what_makes_room() -> None:
    gpu = find_gpu("H100")

    def left(deployment: Deployment, engine: EngineConfig = ENGINE) -> int:
        return estimate_waterfall(MODEL, engine, gpu, deployment).kv_cache.num_bytes

    plain = left(Deployment())
    assert left(Deployment(cuda_graphs=False)) > plain
    assert left(Deployment(cpu_offload_gb=4)) == plain + 4 * GIB
    assert left(Deployment(quantization="fp8")) > plain + 6 * GIB
    assert left(Deployment(gpu_memory_utilization=0.5)) < plain
    fewer = EngineConfig(max_model_len=16384, max_num_batched_tokens=8192, max_num_seqs=64)
    assert left(Deployment(), fewer) > plain


def test_experts_are_dealt_out_to_more_ranks() -> None:
    mixture = load_model("gpt-oss-120b")
    together = rank_weights(mixture, tensor_parallel_size=2).num_bytes
    assert rank_weights(mixture, tensor_parallel_size=2, expert_ranks=8).num_bytes < together / 2


def test_refusals() -> None:
    with pytest.raises(RefusalError, match="leave nothing"):
        estimate_waterfall(load_model("llama-3.1-70b"), ENGINE, find_gpu("L4"), Deployment())
    with pytest.raises(InputError, match="nearest is 'bitsandbytes'"):
        rank_weights(MODEL, quantization="bitsandbyte")
