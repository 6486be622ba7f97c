"""The memory of one GPU from top to bottom: total, what vLLM may use, weights, activations, graphs, KV cache."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from sim.engine_config import EngineConfig
from sim.errors import RefusalError
from sim.footprint.amount import Amount
from sim.footprint.overhead import BYTES_PER_LOGIT, activation_bytes, graph_bytes
from sim.footprint.weights import rank_weights
from sim.hardware import Gpu
from sim.models import Model
from sim.units import GIB

DEFAULT_UTILIZATION = 0.92
"""vLLM's ``--gpu-memory-utilization`` (vllm 0.33.0 config/cache.py:77)."""


@dataclass(frozen=True, slots=True)
class Deployment:
    """What decides the memory beside the engine's flags."""

    gpu_memory_utilization: float | None = None
    quantization: str | None = None
    cpu_offload_gb: float = 0.0
    data_parallel_size: int = 1
    enable_expert_parallel: bool = False
    cuda_graphs: bool = True
    vocab_size: int = 128_256
    bytes_per_logit: float = BYTES_PER_LOGIT


@dataclass(frozen=True, slots=True)
class Waterfall:
    """Bytes per GPU. All but ``kv_cache`` are None where the memory of the KV cache was given outright."""

    kv_cache: Amount
    total: Amount | None = None
    utilization: float | None = None
    utilization_given: bool = False
    requested: Amount | None = None
    weights: Amount | None = None
    activations: Amount | None = None
    graphs: Amount | None = None

    def steps(self) -> Iterator[tuple[str, Amount]]:
        """The named amounts that are there, from the top."""
        for name in ("total", "requested", "weights", "activations", "graphs", "kv_cache"):
            amount = getattr(self, name)
            if amount is not None:
                yield name, amount


def given_waterfall(kv_bytes: int, source: str = "given") -> Waterfall:
    """A waterfall of one step: the memory of the KV cache as the user gave it."""
    return Waterfall(Amount(kv_bytes, "exact" if source == "exact" else "given"))


def estimate_waterfall(model: Model, engine: EngineConfig, gpu: Gpu, deployment: Deployment) -> Waterfall:
    """What is left for the KV cache on each GPU; RefusalError where the weights leave nothing.

    Requested is vLLM's share of the whole GPU; profiling takes weights, peak activations and the estimate of CUDA
    graphs off it (vllm 0.33.0 v1/worker/gpu_worker.py:636-760).
    """
    share = deployment.gpu_memory_utilization
    total = Amount(int(gpu.usable_gib * GIB), "estimate", int(0.2 * GIB))
    used = DEFAULT_UTILIZATION if share is None else share
    requested = Amount(int(total.num_bytes * used), "estimate", int(total.spread_bytes * used))
    ranks = engine.tensor_parallel_size
    weights = rank_weights(
        model,
        tensor_parallel_size=ranks,
        pipeline_parallel_size=engine.pipeline_parallel_size,
        expert_ranks=ranks * deployment.data_parallel_size if deployment.enable_expert_parallel else ranks,
        quantization=deployment.quantization,
        offloaded_bytes=int(deployment.cpu_offload_gb * GIB),
    )
    activations = activation_bytes(
        model,
        max_num_batched_tokens=engine.max_num_batched_tokens,
        max_num_seqs=engine.max_num_seqs,
        num_ranks=ranks * engine.pipeline_parallel_size,
        vocab_size=deployment.vocab_size,
        bytes_per_logit=deployment.bytes_per_logit,
    )
    graphs = graph_bytes(model, enabled=deployment.cuda_graphs and gpu.capability != "cpu")
    parts = (weights, activations, graphs)
    left = requested.num_bytes - sum(part.num_bytes for part in parts)
    spread = int(sum(part.spread_bytes**2 for part in (requested, *parts)) ** 0.5)
    if left <= 0:
        raise RefusalError(
            f"weights ({weights}), activations ({activations}) and CUDA graphs ({graphs}) leave nothing of"
            f" {requested.num_bytes / GIB:.2f} GiB for the KV cache of {model.name} on {gpu.name}: vLLM refuses to"
            " start; raise --tensor-parallel-size or --gpu-memory-utilization, or quantize",
            where="memory",
        )
    return Waterfall(
        kv_cache=Amount(left, "estimate", spread),
        total=total,
        utilization=used,
        utilization_given=share is not None,
        requested=requested,
        weights=weights,
        activations=activations,
        graphs=graphs,
    )
