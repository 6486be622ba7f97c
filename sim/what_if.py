"""The same model under one changed setting each: hybrid manager off, KV cache in fp8, other parallel sizes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from sim.engine_config import EngineConfig
from sim.errors import InputError, RefusalError
from sim.models import Model
from sim.planning import KVCacheMemoryError, Memory, plan_kv_cache

_TENSOR_PARALLEL = (1, 2, 4, 8)
_PIPELINE_PARALLEL = (1, 2)
_CONTEXT_PARALLEL = (2, 4, 8)


@dataclass(frozen=True, slots=True)
class Alternative:
    """One change and what comes of it; numbers are None where vLLM refuses, ``refusal`` then says why.

    ``pool_bytes`` is per GPU, ``num_gpus`` those of one engine. ``estimated_max_len``: the longest request that would
    have fitted, where the refusal is about that.
    """

    label: str
    changes: dict[str, Any]
    num_gpus: int
    kv_cache_size_tokens: int | None = None
    max_concurrency: float | None = None
    block_size: int | None = None
    pool_bytes: int | None = None
    refusal: str | None = None
    estimated_max_len: int | None = None


def alternatives(
    model: Model, engine: EngineConfig, memory_of: Callable[[EngineConfig], Memory]
) -> tuple[Alternative, ...]:
    """The engine as it is and with one setting changed at a time; ``memory_of`` says what each change leaves.

    Parallel sizes that do not divide the model are left out; other refusals are answers.
    """
    made = []
    for label, changes in _changes(engine):
        alternative = _try(label, changes, model, engine, memory_of)
        if alternative is not None:
            made.append(alternative)
    return tuple(made)


def _changes(engine: EngineConfig) -> Iterator[tuple[str, dict[str, Any]]]:
    yield "as asked", {}
    if not engine.disable_hybrid_kv_cache_manager:
        yield "hybrid manager off", {"disable_hybrid_kv_cache_manager": True}
    if not engine.kv_cache_dtype.startswith("fp8"):
        yield "KV cache in fp8", {"kv_cache_dtype": "fp8"}
    for ranks in _TENSOR_PARALLEL:
        if ranks != engine.tensor_parallel_size and ranks % engine.decode_context_parallel_size == 0:
            yield f"-tp {ranks}", {"tensor_parallel_size": ranks}
    for stages in _PIPELINE_PARALLEL:
        if stages != engine.pipeline_parallel_size:
            yield f"-pp {stages}", {"pipeline_parallel_size": stages}
    for ranks in _CONTEXT_PARALLEL:
        if ranks != engine.decode_context_parallel_size and engine.tensor_parallel_size % ranks == 0:
            yield f"-dcp {ranks}", {"decode_context_parallel_size": ranks}


def _try(
    label: str,
    changes: dict[str, Any],
    model: Model,
    engine: EngineConfig,
    memory_of: Callable[[EngineConfig], Memory],
) -> Alternative | None:
    try:
        changed = replace(engine, **changes)
    except InputError:
        return None
    gpus = changed.tensor_parallel_size * changed.pipeline_parallel_size
    blank = Alternative(label, changes, gpus)
    try:
        plan = plan_kv_cache(model, changed, memory_of(changed))
    except KVCacheMemoryError as error:
        return replace(blank, refusal=error.message, estimated_max_len=error.estimated_max_len)
    except RefusalError as error:
        parallel = any(key.endswith("parallel_size") for key in changes)
        return None if parallel and error.where != "memory" else replace(blank, refusal=error.message)
    except InputError:
        return None
    return replace(
        blank,
        kv_cache_size_tokens=plan.kv_cache_size_tokens,
        max_concurrency=plan.max_concurrency,
        block_size=min(plan.group_block_sizes),
        pool_bytes=plan.pool_bytes,
    )
