"""What given flags ask for, sorted by what they act on: engine, memory, weights; and what is left aside."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sim.engine_config.unmodelled import unmodelled
from sim.errors import InputError
from sim.vllm_flags.connectors import hybrid_manager_after
from sim.vllm_flags.reader import Given
from sim.vllm_flags.speculation import draft_keys

_NO_GRAPHS = ("NONE", 0, "0")
_MEDIA = ("language_model_only", "limit_mm_per_prompt")
"""Flags about images, audio and video that also decide about kernels and batches."""

_RENAMED_ENVIRONMENT = {
    "VLLM_ALLOW_CHUNKED_LOCAL_ATTN_WITH_HYBRID_KV_CACHE": "allow_chunked_local_attn_with_hybrid_kv_cache",
}


@dataclass(frozen=True, slots=True)
class ServeSettings:
    """A command line by what it acts on.

    ``engine`` and ``memory`` hold vLLM's names; ``places`` says for each key how it was written. ``auto_fit``: the
    longest max_model_len that fits is wanted. ``ignored`` and ``uncounted`` are pairs of a flag and what it touches:
    flags that cannot matter, and flags that move memory which is only estimated. ``notes`` say what a flag changed
    that its name does not.
    """

    engine: Mapping[str, Any] = field(default_factory=dict)
    memory: Mapping[str, Any] = field(default_factory=dict)
    places: Mapping[str, str] = field(default_factory=dict)
    gpu_memory_utilization: float | None = None
    auto_fit: bool = False
    dtype: str | None = None
    quantization: str | None = None
    cpu_offload_gb: float = 0.0
    data_parallel_size: int = 1
    enable_expert_parallel: bool = False
    cuda_graphs: bool = True
    throughput: bool = False
    draft_model: str | None = None
    hf_overrides: Mapping[str, Any] = field(default_factory=dict)
    attention_backend: str | None = None
    ignored: tuple[tuple[str, str], ...] = ()
    uncounted: tuple[tuple[str, str], ...] = ()
    notes: tuple[str, ...] = ()


def settings_of(given: Sequence[Given], environment: Mapping[str, str] | None = None) -> ServeSettings:
    """The settings that flags and environment variables stand for; of a flag given twice the last one counts.

    Raises InputError for a flag that changes blocks in a way not modelled, RefusalError for what vLLM refuses.
    """
    last = {item.flag.key: item for item in given}
    for item in last.values():
        if item.flag.effect == "refused":
            _check_harmless(item)
    values = {key: item.value for key, item in last.items()}
    engine = {key: item.value for key, item in last.items() if item.flag.effect == "engine"}
    places = {key: item.written for key, item in last.items()}
    auto_fit = engine.get("max_model_len") == -1
    if auto_fit:
        del engine["max_model_len"]
    notes: list[str] = []
    _from_environment(environment or {}, engine, places, notes)
    engine |= draft_keys(values, places)
    engine |= {key: values[key] for key in _MEDIA if values.get(key) is not None}
    engine |= hybrid_manager_after(values, notes)
    if values.get("gdn_prefill_backend") is not None:
        engine["flashinfer_gdn_prefill"] = values["gdn_prefill_backend"] == "flashinfer"
    return ServeSettings(
        engine=engine,
        memory=_memory(values),
        places=places,
        auto_fit=auto_fit,
        ignored=_listed(last, "none"),
        uncounted=_listed(last, "estimate"),
        notes=tuple(notes),
        **_weights(values, places),
    )


def _listed(last: Mapping[str, Given], effect: str) -> tuple[tuple[str, str], ...]:
    return tuple((item.written, item.flag.touches) for item in last.values() if item.flag.effect == effect)


def _check_harmless(item: Given) -> None:
    """A flag that is not modelled may still be given vLLM's own default."""
    defaults = {
        "prefill_context_parallel_size": (1,),
        "swa_bounded_replay": (True,),
        "runner": ("auto", "generate"),
        "convert": ("auto", "none"),
        "model_impl": ("auto", "vllm"),
    }
    if item.value in defaults.get(item.flag.key, (None, False, {})):
        return
    why = unmodelled(item.flag.key) or f"not modelled ({item.flag.touches}); leave it out"
    raise InputError(why, where=item.written)


def _memory(values: Mapping[str, Any]) -> dict[str, Any]:
    """How much memory the KV cache gets; bytes bypass the estimate, blocks go before bytes as in vLLM."""
    for key in ("num_gpu_blocks_override", "kv_cache_memory_bytes"):
        if values.get(key) is not None:
            return {key: values[key]}
    return {}


def _weights(values: Mapping[str, Any], places: Mapping[str, str]) -> dict[str, Any]:
    """What decides the memory of weights and CUDA graphs."""
    compilation = values.get("compilation_config") or {}
    mode = compilation.get("cudagraph_mode") if isinstance(compilation, Mapping) else None
    level = values.get("optimization_level")
    backend = values.get("attention_backend") or (values.get("attention_config") or {}).get("backend")
    overrides = values.get("hf_overrides") or {}
    dtype = values.get("dtype")
    return {
        "gpu_memory_utilization": _utilization(values, places),
        "dtype": {"half": "float16", "float": "float32", "auto": None}.get(str(dtype), dtype),
        "quantization": values.get("quantization"),
        "cpu_offload_gb": values.get("cpu_offload_gb") or 0.0,
        "data_parallel_size": values.get("data_parallel_size", 1),
        "enable_expert_parallel": bool(values.get("enable_expert_parallel")),
        "cuda_graphs": not values.get("enforce_eager") and mode not in _NO_GRAPHS and level not in ("0", 0),
        "throughput": values.get("performance_mode") == "throughput",
        "draft_model": values.get("spec_model") or (values.get("speculative_config") or {}).get("model"),
        "hf_overrides": overrides if isinstance(overrides, Mapping) else {},
        "attention_backend": backend,
    }


def _utilization(values: Mapping[str, Any], places: Mapping[str, str]) -> float | None:
    share = values.get("gpu_memory_utilization")
    if share is not None and not 0 < share <= 1:
        raise InputError(f"got {share}; a share above 0 and at most 1", where=places["gpu_memory_utilization"])
    return None if share is None else float(share)


def _from_environment(
    environment: Mapping[str, str], engine: dict[str, Any], places: dict[str, str], notes: list[str]
) -> None:
    """Environment variables of vLLM that decide blocks (vllm 0.33.0 envs.py)."""
    for name, key in _RENAMED_ENVIRONMENT.items():
        if name in environment:
            engine[key] = environment[name].strip().lower() not in ("0", "false", "")
            places[key] = name
    others = (name for name in environment if name.startswith("VLLM_") and name not in _RENAMED_ENVIRONMENT)
    notes.extend(f"{name} is not looked at" for name in others)
