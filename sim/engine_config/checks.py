"""Types, ranges and combinations of engine flags, with vLLM's own refusals."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from sim.engine_config.media import TP_MODES
from sim.errors import InputError, RefusalError, nearest

if TYPE_CHECKING:
    from sim.engine_config.config import EngineConfig

POLICIES: Final = ("fcfs", "priority")
"""Values of ``--scheduling-policy``."""

KV_CACHE_DTYPES: Final = (
    "auto",
    "float16",
    "bfloat16",
    "fp8",
    "fp8_e4m3",
    "fp8_e5m2",
    "fp8_ds_mla",
    "int8_per_token_head",
    "fp8_per_token_head",
    "int4_per_token_head",
    "nvfp4",
)
"""Values of ``--kv-cache-dtype`` that are modelled; vLLM knows more (packed formats of single kernels)."""

KV_CACHE_LAYOUTS: Final = ("LBHNC", "LBNHC", "LHBNC", "BLHNC", "BLNHC", "BHLNC")
"""Orders of a cache's dimensions: layers, blocks, heads, tokens, content (vllm 0.33.0 v1/kv_cache_layout.py)."""

MAMBA_CACHE_MODES: Final = (None, "none", "align")
MAMBA_DTYPES: Final = ("auto", "float32", "float16", "bfloat16")
SPECULATIVE_METHODS: Final = (None, "eagle", "eagle3", "mtp", "dflash", "draft_model", "ngram")
"""Values of ``speculative_config.method`` that are modelled."""

ALL2ALL_BACKENDS: Final = (
    "allgather_reducescatter",
    "naive",
    "pplx",
    "deepep_high_throughput",
    "deepep_low_latency",
    "deepep_v2",
    "mori_high_throughput",
    "mori_low_latency",
    "moonep",
    "nixl_ep",
    "flashinfer_all2allv",
    "flashinfer_nvlink_one_sided",
    "flashinfer_nvlink_two_sided",
)
"""Values of ``--all2all-backend`` that may be asked for (vllm 0.33.0 config/parallel.py:45-59)."""

_CHOICES: Final[dict[str, tuple[str | None, ...]]] = {
    "scheduling_policy": POLICIES,
    "kv_cache_dtype": KV_CACHE_DTYPES,
    "kv_cache_layout": KV_CACHE_LAYOUTS,
    "mamba_cache_mode": MAMBA_CACHE_MODES,
    "mamba_cache_dtype": MAMBA_DTYPES,
    "mamba_ssm_cache_dtype": MAMBA_DTYPES,
    "speculative_method": SPECULATIVE_METHODS,
    "all2all_backend": ALL2ALL_BACKENDS,
    "mm_encoder_tp_mode": TP_MODES,
}

_LARGEST: Final = (1 << 31) - 1
"""Larger settings would overflow vLLM's own int32 tables."""

_AT_LEAST: Final = {
    "max_model_len": 1,
    "max_num_batched_tokens": 1,
    "max_num_seqs": 1,
    "max_num_active_seqs": 1,
    "block_size": 1,
    "tensor_parallel_size": 1,
    "pipeline_parallel_size": 1,
    "decode_context_parallel_size": 1,
    "data_parallel_size": 1,
    "long_prefill_token_threshold": 0,
    "prefill_schedule_interval": 1,
    "prefix_cache_retention_interval": 0,
    "prefix_match_unit": 1,
    "mamba_block_size": 1,
    "num_speculative_tokens": 0,
    "num_mtp_modules": 1,
}
_MAY_BE_NONE: Final = frozenset(
    {"block_size", "prefix_cache_retention_interval", "prefix_match_unit", "mamba_block_size", "max_num_active_seqs"}
)
_SWITCHES: Final = (
    "enable_expert_parallel",
    "enable_prefix_caching",
    "enable_chunked_prefill",
    "long_prefill_token_threshold_adaptive",
    "scheduler_reserve_full_isl",
    "async_scheduling",
    "disable_hybrid_kv_cache_manager",
    "allow_chunked_local_attn_with_hybrid_kv_cache",
    "enable_mamba_shared_prefix_checkpoint",
    "flashinfer_gdn_prefill",
    "disable_eagle_block_drop",
    "disable_lookahead_block_hashes",
    "language_model_only",
    "enable_mm_embeds",
    "disable_chunked_mm_input",
)


def check_fields(config: EngineConfig) -> None:
    """Raise InputError for a value of the wrong type or out of range."""
    for name, least in _AT_LEAST.items():
        value = getattr(config, name)
        if name in _MAY_BE_NONE and value is None:
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
    skipped: Any = config.kv_cache_dtype_skip_layers
    if not isinstance(skipped, tuple) or not all(isinstance(name, str) for name in skipped):
        message = f"must be a list of layer numbers as texts, or sliding_window, got {skipped!r}"
        raise InputError(message, where="engine.kv_cache_dtype_skip_layers")
    for name, allowed in _CHOICES.items():
        _check_choice(name, getattr(config, name), allowed)


def _check_choice(name: str, value: Any, allowed: tuple[str | None, ...]) -> None:
    if value in allowed:
        return
    names = [choice for choice in allowed if choice is not None]
    hint = nearest(str(value), names)
    meant = f" (nearest: '{hint}')" if hint else ""
    raise InputError(f"must be one of {', '.join(names)}, got {value!r}{meant}", where=f"engine.{name}")


def check_combinations(config: EngineConfig) -> None:
    """Raise RefusalError for what vLLM refuses, or InputError for what contradicts itself."""
    _check_scheduler(config)
    _check_speculation(config)
    _check_parallelism(config)
    if config.mamba_block_size not in (None, config.max_model_len) and not config.enable_prefix_caching:
        raise RefusalError(
            f"{config.mamba_block_size} can only be set with prefix caching: vLLM refuses to start; leave it out",
            where="engine.mamba_block_size",
        )


def _check_scheduler(config: EngineConfig) -> None:
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
    if config.max_num_active_seqs is not None and config.max_num_active_seqs > config.max_num_seqs:
        raise RefusalError(
            f"{config.max_num_active_seqs} is greater than max_num_seqs ({config.max_num_seqs}): vLLM refuses to start",
            where="engine.max_num_active_seqs",
        )


def _check_speculation(config: EngineConfig) -> None:
    """Drafts need a method and a number, and room in the batch (vllm 0.33.0 config/vllm.py:2341-2372)."""
    if (config.speculative_method is None) != (config.num_speculative_tokens == 0):
        raise InputError(
            "speculative_method and num_speculative_tokens go together: give both, or neither",
            where="engine.num_speculative_tokens",
        )
    if config.num_lookahead_tokens and config.max_num_batched_tokens <= config.num_lookahead_tokens:
        raise RefusalError(
            f"{config.max_num_batched_tokens} leaves no room beside {config.num_lookahead_tokens} draft tokens: vLLM"
            " refuses to start; raise it or lower num_speculative_tokens",
            where="engine.max_num_batched_tokens",
        )


def _check_parallelism(config: EngineConfig) -> None:
    """Context parallelism reuses the tensor-parallel ranks (vllm 0.33.0 config/parallel.py:599)."""
    ranks = config.decode_context_parallel_size
    if config.tensor_parallel_size % ranks:
        raise RefusalError(
            f"{ranks} does not divide tensor_parallel_size ({config.tensor_parallel_size}): vLLM refuses to start",
            where="engine.decode_context_parallel_size",
        )
