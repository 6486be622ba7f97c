"""vLLM's default budgets on a GPU described to it. Runs inside the oracle environment only."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any


def budgets(case: dict[str, Any]) -> dict[str, Any]:
    """vLLM's default token and sequence budgets on a GPU described to it."""
    from vllm.engine import arg_utils
    from vllm.usage.usage_lib import UsageContext

    from tests.oracle.vllm_build import _model_folder

    real, arg_utils.current_platform = arg_utils.current_platform, StandIn(case["gpu"], case["memory_bytes"])
    given = ("max_num_batched_tokens", "max_num_seqs", "enable_chunked_prefill")
    args = arg_utils.EngineArgs(model=_model_folder(False), **{name: case[name] for name in given})
    usage = UsageContext.LLM_CLASS if case["usage"] == "offline" else UsageContext.OPENAI_API_SERVER
    model = SimpleNamespace(max_model_len=case["max_model_len"], is_multimodal_model=False)
    args._set_default_max_num_seqs_and_batched_tokens_args(usage, model, SimpleNamespace(use_batched_dp_moe=False))
    arg_utils.current_platform = real
    return {"budgets": [args.max_num_batched_tokens, args.max_num_seqs]}


class StandIn:
    """A platform with one GPU, as far as the default budgets ask about it."""

    def __init__(self, name: str, memory_bytes: int) -> None:
        self.name = name
        self.memory_bytes = memory_bytes

    def get_device_name(self) -> str:
        """As the driver calls it."""
        return self.name

    def get_device_total_memory(self) -> int:
        """In bytes."""
        return self.memory_bytes

    def is_device_capability(self, capability: tuple[int, int]) -> bool:
        """Asked only about 12.1, which is the GB10's."""
        return capability == (12, 1) and self.name == "GB10"

    def is_tpu(self) -> bool:
        """No."""
        return False

    def is_cpu(self) -> bool:
        """No."""
        return False
