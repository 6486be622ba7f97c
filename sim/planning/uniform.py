"""Whether a set of layers is of one kind, so that all of them fit one group."""

from __future__ import annotations

from collections.abc import Sequence

from sim.errors import RefusalError
from sim.specs import Spec, WindowConflictError


def merge_into_one(specs: Sequence[Spec]) -> Spec | None:
    """The one spec that stands for all layers, or None when they differ.

    Raises RefusalError where vLLM stops instead of answering no: full-attention layers that carry notes of different
    windows (vllm 0.33.0 v1/kv_cache_interface.py:651, an error that v1/core/kv_cache_planning.py:218 does not catch).
    """
    try:
        return type(specs[0]).merge(specs)
    except WindowConflictError as conflict:
        raise RefusalError(
            f"{conflict} cannot share one full-attention group: vLLM refuses to start; leave the hybrid KV cache"
            " manager on",
            where="engine.disable_hybrid_kv_cache_manager",
        ) from conflict


def is_uniform_type(specs: Sequence[Spec]) -> bool:
    """Whether all layers always need equally many blocks: one block size, one family (full attention, one window, ...).

    Head counts, head sizes and dtypes may differ (vllm 0.33.0 v1/kv_cache_interface.py:1347).
    """
    first = specs[0]
    if any((spec.block_size, spec.dcp_sharded) != (first.block_size, first.dcp_sharded) for spec in specs):
        return False
    return first.is_uniform_with(specs)
