"""The engine's settings: vLLM's own flags under vLLM's names, with the defaults and the refusals of vLLM 0.33.0."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from sim.errors import InputError, RefusalError, nearest
from sim.hardware import Gpu
from sim.units import GIB

POLICIES: Final = ("fcfs", "priority")
"""Values of ``--scheduling-policy``."""

KV_CACHE_DTYPES: Final = (
    "auto",
    "float16",
    "bfloat16",
    "fp8",
    "fp8_e4m3",
    "fp8_e5m2",
    "int8_per_token_head",
    "fp8_per_token_head",
    "int4_per_token_head",
)
"""Values of ``--kv-cache-dtype`` that are modelled; vLLM knows more (NVFP4, MLA and packed formats)."""

USAGES: Final = ("server", "offline")
"""How the engine is used: the API server, or the offline ``LLM`` class; vLLM's default budgets depend on it."""

_LARGEST: Final = (1 << 31) - 1
"""Larger settings would overflow vLLM's own int32 tables."""

_AT_LEAST: Final = {
    "max_model_len": 1,
    "max_num_batched_tokens": 1,
    "max_num_seqs": 1,
    "block_size": 1,
    "tensor_parallel_size": 1,
    "pipeline_parallel_size": 1,
    "long_prefill_token_threshold": 0,
    "prefix_cache_retention_interval": 0,
}
_SWITCHES: Final = (
    "enable_prefix_caching",
    "enable_chunked_prefill",
    "scheduler_reserve_full_isl",
    "async_scheduling",
    "disable_hybrid_kv_cache_manager",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineConfig:
    """Resolved engine flags; what each means is documented by vLLM under the same name.

    Lengths, thresholds and budgets are in tokens, ``watermark`` is a share of the blocks. A value of the wrong type or
    range raises InputError, a combination vLLM refuses at start raises RefusalError; both name the key ``engine.x``.
    ``block_size`` may be any positive integer, although GPU kernels want a multiple of 16.
    """

    max_model_len: int
    max_num_batched_tokens: int
    max_num_seqs: int
    block_size: int = 16
    kv_cache_dtype: str = "auto"
    tensor_parallel_size: int = 1
    pipeline_parallel_size: int = 1
    enable_prefix_caching: bool = True
    prefix_cache_retention_interval: int | None = 0
    enable_chunked_prefill: bool = True
    long_prefill_token_threshold: int = 0
    scheduling_policy: str = "fcfs"
    scheduler_reserve_full_isl: bool = True
    watermark: float = 0.0
    async_scheduling: bool = True
    disable_hybrid_kv_cache_manager: bool = False

    def __post_init__(self) -> None:
        _check_fields(self)
        _check_combinations(self)

    @property
    def max_concurrent_batches(self) -> int:
        """Batches that may be scheduled before the first one's output is processed (vllm 0.33.0 config/vllm.py:588).

        One per pipeline stage, and one more with async scheduling.
        """
        return self.pipeline_parallel_size + 1 if self.async_scheduling else self.pipeline_parallel_size

    @property
    def max_in_flight_tokens(self) -> int:
        """Most tokens scheduled and not yet processed, which keep their blocks (vllm 0.33.0 config/vllm.py:600)."""
        return self.max_concurrent_batches * self.max_num_batched_tokens


def _check_fields(config: EngineConfig) -> None:
    for name, least in _AT_LEAST.items():
        value = getattr(config, name)
        if name == "prefix_cache_retention_interval" and value is None:
            continue
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= _LARGEST:
            raise InputError(f"must be an integer from {least} to {_LARGEST}, got {value!r}", where=f"engine.{name}")
    for name in _SWITCHES:
        value = getattr(config, name)
        if not isinstance(value, bool):
            raise InputError(f"must be true or false, got {value!r}", where=f"engine.{name}")
    watermark: Any = config.watermark
    if isinstance(watermark, bool) or not isinstance(watermark, int | float) or not 0 <= watermark < 1:
        raise InputError(f"must be at least 0 and below 1, got {watermark!r}", where="engine.watermark")
    _check_choice("scheduling_policy", config.scheduling_policy, POLICIES)
    _check_choice("kv_cache_dtype", config.kv_cache_dtype, KV_CACHE_DTYPES)


def _check_choice(name: str, value: Any, allowed: tuple[str, ...]) -> None:
    if value in allowed:
        return
    hint = nearest(str(value), allowed)
    meant = f" (nearest: '{hint}')" if hint else ""
    raise InputError(f"must be one of {', '.join(allowed)}, got {value!r}{meant}", where=f"engine.{name}")


def _check_combinations(config: EngineConfig) -> None:
    """What vLLM refuses about the scheduler (vllm 0.33.0 config/scheduler.py:315-362)."""
    budget = config.max_num_batched_tokens
    if budget < config.max_model_len and not config.enable_chunked_prefill:
        raise RefusalError(
            f"{budget} is smaller than max_model_len ({config.max_model_len}) while chunked prefill is off: vLLM"
            " refuses to start; raise it, lower max_model_len, or turn chunked prefill on",
            where="engine.max_num_batched_tokens",
        )
    if budget < config.max_num_seqs:
        raise RefusalError(
            f"{budget} is smaller than max_num_seqs ({config.max_num_seqs}): vLLM refuses to start; raise it or lower"
            " max_num_seqs",
            where="engine.max_num_batched_tokens",
        )
    if config.long_prefill_token_threshold > config.max_model_len:
        raise RefusalError(
            f"{config.long_prefill_token_threshold} is greater than max_model_len ({config.max_model_len}): vLLM"
            " refuses to start",
            where="engine.long_prefill_token_threshold",
        )


def default_budgets(
    gpu: Gpu | None,
    usage: str,
    max_model_len: int,
    *,
    max_num_batched_tokens: int | None = None,
    max_num_seqs: int | None = None,
    enable_chunked_prefill: bool = True,
) -> tuple[int, int]:
    """``(max_num_batched_tokens, max_num_seqs)``: those given, and vLLM's defaults for the others.

    ``gpu=None`` is a GPU that vLLM cannot ask, which it treats as a small one. Raises InputError for a ``usage`` that
    is not in USAGES. Rules: vllm 0.33.0 engine/arg_utils.py:2940-3039 and :3151-3240.

    >>> from sim.hardware import find_gpu
    >>> (
    ...     default_budgets(find_gpu("H100-80GB"), "server", 131072),
    ...     default_budgets(find_gpu("A100-80GB"), "server", 131072),
    ... )
    ((8192, 1024), (2048, 256))
    """
    default_tokens, default_seqs = _defaults_by_gpu(gpu, usage)
    seqs = default_seqs if max_num_seqs is None else max_num_seqs
    if max_num_batched_tokens is None:
        tokens = default_tokens if enable_chunked_prefill else max(max_model_len, default_tokens)
        tokens = min(seqs * max_model_len, tokens)
    else:
        tokens = max_num_batched_tokens
    return tokens, min(seqs, tokens) if max_num_seqs is None else seqs


def _defaults_by_gpu(gpu: Gpu | None, usage: str) -> tuple[int, int]:
    if usage not in USAGES:
        hint = nearest(str(usage), USAGES)
        meant = f" (nearest: '{hint}')" if hint else ""
        raise InputError(f"must be one of {', '.join(USAGES)}, got {usage!r}{meant}", where="hardware.usage")
    offline = usage == "offline"
    memory = 0.0 if gpu is None else gpu.mem_gb * 1e9 / GIB
    small = gpu is None or gpu.name.startswith(("A100", "GB10"))
    if memory >= 160:
        return 16384, 1024
    if memory >= 70 and not small:
        return 16384 if offline else 8192, 1024
    return 8192 if offline else 2048, 256
