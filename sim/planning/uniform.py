"""Whether a set of layers is of one kind, so that all of them fit one group."""

from __future__ import annotations

from collections.abc import Sequence

from sim.errors import RefusalError
from sim.specs import Spec, distinct_windows, merge_specs


def merge_into_one(specs: Sequence[Spec]) -> Spec | None:
    """The one spec that stands for all layers, or None when they differ.

    Raises RefusalError where vLLM stops instead of answering no: full-attention layers that carry notes of different
    windows (vllm 0.33.0 v1/kv_cache_interface.py:651, an error that v1/core/kv_cache_planning.py:235 does not catch).
    """
    merged = merge_specs(specs)
    windows = distinct_windows(specs)
    if merged is None and len(windows) > 1 and all(spec.kind == "full_attention" for spec in specs):
        raise RefusalError(
            f"windows of {', '.join(map(str, windows))} tokens cannot share one full-attention group: vLLM refuses to"
            " start; leave the hybrid KV cache manager on",
            where="engine.disable_hybrid_kv_cache_manager",
        )
    return merged


def is_uniform_type(specs: Sequence[Spec]) -> bool:
    """Whether all layers always need equally many tokens: one block size, and all full attention or all one window.

    Head counts, head sizes and dtypes may differ (vllm 0.33.0 v1/kv_cache_interface.py:1347).
    """
    first = specs[0]
    if any(spec.block_size != first.block_size or spec.kind != first.kind for spec in specs):
        return False
    return first.kind == "full_attention" or all(spec.sliding_window == first.sliding_window for spec in specs)
