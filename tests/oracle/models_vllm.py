"""vLLM's own model classes, built on the meta device: which KV cache specs their layers have.

Runs inside the oracle environment, from the project's folder: ``python -m tests.oracle.models_vllm h100``. Reads one
case as JSON per line on standard input (``tests/oracle/model_cases.py`` makes them): ``config`` is a ``config.json``,
``flags`` are vLLM's; ``{}`` asks for the model types there are. Writes ``{"specs": […], "max_model_len", "dtype"}`` or
``{"error"}`` per line; with ``TRACEBACKS`` in the environment, where an error was raised goes to standard error.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import sys
import tempfile
import traceback
from pathlib import Path
from typing import Any

from tests.oracle import described_gpu
from tests.oracle.models_plan_vllm import planned


def main() -> None:
    """Answer cases until standard input ends; vLLM's own output goes to standard error."""
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    described_gpu.install(sys.argv[1])
    for line in sys.stdin:
        case = json.loads(line)
        if "config" not in case:
            print(json.dumps({"model_types": model_types()}), file=out, flush=True)
            continue
        try:
            with tempfile.TemporaryDirectory() as folder:
                Path(folder, "config.json").write_text(json.dumps(case["config"]))
                answer = build(folder, case["flags"])
        except Exception as error:  # noqa: BLE001 (whatever vLLM raises is its answer)
            if os.environ.get("TRACEBACKS"):
                traceback.print_exc()
            answer = {"error": f"{type(error).__name__}: {' '.join(str(error).split())[:400]}"}
        print(json.dumps(answer), file=out, flush=True)


def model_types() -> list[str]:
    """Every model type that transformers or vLLM has a config class for."""
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING_NAMES
    from vllm.transformers_utils.config import _CONFIG_REGISTRY

    return sorted({*CONFIG_MAPPING_NAMES, *_CONFIG_REGISTRY})


def build(folder: str, flags: dict[str, Any]) -> dict[str, Any]:
    """The specs of the model in ``folder``."""
    import torch
    from vllm.config import set_current_vllm_config
    from vllm.engine.arg_utils import EngineArgs
    from vllm.model_executor.model_loader.utils import initialize_model
    from vllm.platforms import current_platform
    from vllm.usage.usage_lib import UsageContext
    from vllm.v1.kv_cache_interface import MambaSpec
    from vllm.v1.worker.gpu.attn_utils import get_kv_cache_spec
    from vllm.v1.worker.utils import select_common_block_size
    from vllm.v1.worker.workspace import init_workspace_manager

    if "qwen4_exp" in Path(folder, "config.json").read_text():  # embeddings of n-grams stay on the device, not pinned
        flags = {**flags, "engram_config": {"cpu_offload": False}}
    ranks = flags.get("tensor_parallel_size", 1)
    several = {"distributed_executor_backend": "mp"} if ranks > 1 else {}
    arguments = EngineArgs(
        model=folder, skip_tokenizer_init=True, load_format="dummy", enforce_eager=True, **several, **flags
    )
    config = arguments.create_engine_config(UsageContext.OPENAI_API_SERVER)
    described_gpu.install_groups(ranks)
    init_workspace_manager(torch.device("meta"))
    config.load_config.device = "meta"
    with set_current_vllm_config(config, check_compile=False):
        with default_dtype(config.model_config.dtype), torch.device("meta"), described_gpu.OnMeta():
            initialize_model(config)
        current_platform.update_block_size_for_backend(config)
        specs = get_kv_cache_spec(config)
        layers = config.compilation_config.static_forward_context
        for name, spec in specs.items():  # as a worker does before it allocates
            if not isinstance(spec, MambaSpec):
                select_common_block_size(spec.block_size, [layers[name].get_attn_backend()], [spec])
    return {
        "specs": [described(spec) for spec in specs.values()],
        "max_model_len": config.model_config.max_model_len,
        "dtype": str(config.model_config.dtype).removeprefix("torch."),
        "plan": planned(config, specs),
    }


@contextlib.contextmanager
def default_dtype(dtype: Any) -> Any:
    """Torch's dtype of new tensors, for a while."""
    import torch

    torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(torch.float32)


def described(spec: Any) -> dict[str, Any]:
    """A spec's class, page and fields; dtypes as words."""
    fields = {field.name: plain(getattr(spec, field.name)) for field in dataclasses.fields(spec)}
    return {"class": type(spec).__name__, "page_size_bytes": spec.page_size_bytes, **fields}


def plain(value: Any) -> Any:
    """As JSON has it."""
    if isinstance(value, (int, float, str, type(None))):
        return value
    if isinstance(value, (tuple, list)):
        return [plain(item) for item in value]
    return str(value).removeprefix("torch.")


if __name__ == "__main__":
    main()
