"""Public serving points as they lie in ``../shared/data/measured``, with the flags each was run with.

InferenceX points (NVIDIA's aiconfigurator-core 0.12.0, Apache-2.0, after SemiAnalysis's InferenceX): as many clients as
``concurrency``, ten requests a client, all waiting at the start, lengths uniform in 80-100 % of the nominal ones,
no prefix caching, batches of 8,192 tokens, asynchronous scheduling, gpu_memory_utilization 0.9.

Llama-3.3-70B on H100 was served with a 16-bit KV cache: its launch script says fp8, but the times to first token of
``tensor_parallel_size`` 2 tell that 29 requests of 7,900 tokens ran at once, where fp8 would have held 58.
"""

from __future__ import annotations

import csv
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from sim.calibrate.points import Point
from sim.engine_config import EngineConfig
from sim.footprint.waterfall import Deployment, estimate_waterfall
from sim.hardware import find_gpu
from sim.models import Model, load_model, model_from_mapping

SHARED: Final = Path(__file__).resolve().parents[2].parent / "shared" / "data" / "measured"

GPUS: Final = {"h100_sxm": "H100-80GB", "h200_sxm": "H200-141GB", "b200_sxm": "B200-180GB"}
LLAMA: Final = {"base": "llama-3.1-70b", "name": "llama-3.3-70b-fp8", "weight_bytes_per_param": 1.0}
MODELS: Final[Mapping[str, Any]] = {"gptoss120b": "gpt-oss-120b", "llama70b_fp8": LLAMA}
_LONGER: Final = 200
"""Tokens of ``max_model_len`` beyond the longest request, as the launch scripts had it."""


@dataclass(frozen=True, slots=True)
class Case:
    """A measured point: ``file`` and ``gpu`` name its group; ``flagged``: taken for a slip of the measurement."""

    file: str
    gpu: str
    release: str
    tensor_parallel_size: int
    point: Point
    flagged: bool = False

    @property
    def group(self) -> tuple[str, str]:
        """What shares one set of coefficients."""
        return self.file, self.gpu


def model_of(file: str) -> Model:
    """The model behind a file of points."""
    given = MODELS[file]
    return load_model(given) if isinstance(given, str) else model_from_mapping(given)


def base_of(file: str, gpu: str) -> dict[str, Any]:
    """The parts of a scenario that all points of a group share."""
    engine = {"enable_prefix_caching": False, "max_num_batched_tokens": 8192}
    return {"model": MODELS[file], "hardware": {"gpu": gpu}, "engine": engine, "memory": {}}


def inferencex_cases(folder: Path = SHARED) -> list[Case]:
    """All InferenceX points of both models, in the order of the files."""
    return [
        _inferencex(file, row)
        for file in MODELS
        for row in csv.DictReader((folder / f"{file}_vllm_inferencex.csv").read_text(encoding="utf-8").splitlines())
    ]


def _inferencex(file: str, row: Mapping[str, str]) -> Case:
    gpu, ranks = GPUS[row["system"]], int(row["tp"])
    clients, lengths = int(row["concurrency"]), (int(row["isl"]), int(row["osl"]))
    dtype = "auto" if gpu == "H100-80GB" else row["kv_dtype"].replace("bf16", "auto")
    engine = {
        "tensor_parallel_size": ranks,
        "max_num_seqs": int(row["max_num_seqs"]),
        "max_model_len": sum(lengths) + _LONGER,
        "kv_cache_dtype": dtype,
        "scheduler_reserve_full_isl": file == "gptoss120b",  # 0.10.2 did not yet
    }
    point = Point(
        place=row["id"],
        input_len=(int(0.8 * lengths[0]), lengths[0]),
        output_len=(int(0.8 * lengths[1]), lengths[1]),
        num_prompts=int(row["requests"]),
        measured={"mean_ttft_ms": float(row["mean_ttft_ms"]), "mean_tpot_ms": float(row["mean_tpot_ms"])},
        concurrency=clients,
        changes={"engine": engine, "memory": {"available_kv_cache_memory_gib": memory_gib(file, gpu, engine)}},
    )
    return Case(file, gpu, row["vllm"], ranks, point, row["flagged_outlier"] == "True")


def memory_gib(file: str, gpu: str, engine: Mapping[str, Any]) -> float:
    """Memory for the KV cache as the planner estimates it at a utilization of 0.9; graphs were not counted then."""
    config = EngineConfig(max_num_batched_tokens=8192, device_capability=find_gpu(gpu).capability, **engine)
    deployment = Deployment(gpu_memory_utilization=0.9, cuda_graphs=False)
    left = estimate_waterfall(model_of(file), config, find_gpu(gpu), deployment).kv_cache.num_bytes
    return round(left / (1 << 30), 2)


def nebius_cases(folder: Path = SHARED) -> list[tuple[Case, Mapping[str, str]]]:
    """The sweep of one H200 to its memory limit (GloriaXimingLu/inferencex-profiling), each with its whole row."""
    text = (folder / "gptoss120b_h200_nebius_sweep.csv").read_text(encoding="utf-8")
    return [(_nebius(row), row) for row in csv.DictReader(text.splitlines())]


def _nebius(row: Mapping[str, str]) -> Case:
    lengths = int(row["isl"]), int(row["osl"])
    engine = {"max_num_seqs": int(row["max_num_seqs"]), "max_model_len": int(row["max_model_len"])}
    point = Point(
        place=f"nebius c{row['concurrency']}",
        input_len=(int(0.8 * lengths[0]), lengths[0]),
        output_len=(int(0.8 * lengths[1]), lengths[1]),
        num_prompts=int(row["requests"]),
        measured={
            "mean_ttft_ms": float(row["mean_ttft_ms"]),
            "mean_tpot_ms": float(row["mean_tpot_ms"]),
            "output_throughput": float(row["out_tok_s"]),
        },
        concurrency=int(row["concurrency"]),
        changes={"engine": engine, "memory": {"num_gpu_blocks_override": int(row["num_blocks"])}},
    )
    return Case("gptoss120b", "H200-141GB", row["vllm"], 1, point)


def openloop_cases(folder: Path = SHARED) -> list[tuple[float, Point, Mapping[str, str]]]:
    """Qwen3-14B on one H100, Poisson arrivals (inference-sim/residency-vllm): rate, point, and its whole row."""
    text = (folder / "qwen3_14b_h100_openloop_summary.csv").read_text(encoding="utf-8")
    return [_openloop(row) for row in csv.DictReader(text.splitlines())]


def _openloop(row: Mapping[str, str]) -> tuple[float, Point, Mapping[str, str]]:
    rate = float(row["run"].split("_")[-1].removesuffix("rps"))
    tokens, outputs = round(float(row["in_mean"])), round(float(row["out"]))
    point = Point(
        place=row["run"],
        input_len=(tokens, tokens),
        output_len=(outputs, outputs),
        num_prompts=int(row["n"]),
        measured={"mean_ttft_ms": float(row["ttft_mean"]), "mean_tpot_ms": float(row["tpot_mean"])},
        request_rate=rate,
        changes={"memory": {"num_gpu_blocks_override": 18_038}},
    )
    return rate, point, row


OPENLOOP_BASE: Final[Mapping[str, Any]] = {
    "model": "qwen3-14b",
    "hardware": {"gpu": "H100-80GB"},
    "engine": {"enable_prefix_caching": False},
    "memory": {},
}
