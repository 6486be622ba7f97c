"""vLLM's own KV cache buffers for given layers: where each layer's view lies in the allocation, and its strides.

Runs inside the oracle environment, from the project's folder: ``python -m tests.oracle.buffers_vllm``. Reads one case
as JSON per line on standard input and writes one answer per line. The buffers are allocated and viewed by vLLM's worker
on torch's meta device, which has sizes and strides but no memory.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any

from tests.oracle.described_gpu import _Finder
from tests.oracle.planning_vllm import plan_config, stage_specs


def main() -> None:
    """Answer cases until standard input ends."""
    out = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # whatever a library prints goes to standard error
    os.environ.update(VLLM_USE_V2_MODEL_RUNNER="1", VLLM_NO_USAGE_STATS="1", HF_HUB_OFFLINE="1")
    os.environ.setdefault("VLLM_LOGGING_LEVEL", "CRITICAL")
    for line in sys.stdin:
        print(json.dumps(answer(json.loads(line))), file=out, flush=True)


def answer(case: dict[str, Any]) -> list[dict[str, Any]] | None:
    """The buffers of every pipeline stage, None where vLLM refuses the plan or fails to allocate."""
    from vllm.v1.core import kv_cache_planning as planning
    from vllm.v1.core.single_type_kv_cache_manager import register_all_kvcache_specs

    try:
        settings = plan_config(case)
        register_all_kvcache_specs(settings)
        workers = stage_specs(case)
        groups = planning.get_global_kv_cache_groups(settings, workers)
        configs = planning.get_kv_cache_configs(settings, workers, [1 << 40] * len(workers), groups)
    except (ValueError, NotImplementedError, TypeError, AssertionError, StopIteration):
        return None
    try:
        return [buffers(config, settings.cache_config.get_resolved_kv_cache_layout()) for config in configs]
    except StopIteration:  # it looks for the group of a layer that lies on another stage
        return None


def buffers(config: Any, layout: Any) -> dict[str, Any]:
    """One worker's allocation: its bytes, and per layer the first byte, the shape in bytes and the strides in bytes."""
    import torch

    if not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        sys.meta_path.append(_Finder())  # the worker's imports bring packages that no buffer needs
    from vllm.v1.worker.utils import allocate_kv_cache

    views = allocate_kv_cache(config, torch.device("meta"), layout)
    return {
        "bytes": config.kv_cache_tensors[0].size if config.kv_cache_tensors else 0,
        "layers": {name: placed(view) for name, view in sorted(views.items())},
    }


def placed(view: Any) -> list[Any]:
    """First byte, shape and strides of one layer's view; the last axis counts bytes."""
    item = view.element_size()
    *shape, content = view.shape
    *strides, last = view.stride()
    assert last == 1, "content is not contiguous"
    return [view.storage_offset() * item, [*shape, content * item], [*(stride * item for stride in strides), 1]]


if __name__ == "__main__":
    main()
