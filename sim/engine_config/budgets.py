"""Token and sequence budgets that vLLM chooses by GPU and usage where the user gives none."""

from __future__ import annotations

from typing import Final

from sim.errors import InputError, nearest
from sim.hardware import Gpu
from sim.units import GIB

USAGES: Final = ("server", "offline")
"""How the engine is used: the API server, or the offline ``LLM`` class; vLLM's default budgets depend on it."""


def default_budgets(
    gpu: Gpu | None,
    usage: str,
    max_model_len: int,
    *,
    max_num_batched_tokens: int | None = None,
    max_num_seqs: int | None = None,
    enable_chunked_prefill: bool = True,
    world_size: int = 1,
    throughput: bool = False,
    largest_item_tokens: int = 0,
) -> tuple[int, int]:
    """``(max_num_batched_tokens, max_num_seqs)``: those given, and vLLM's defaults for the others.

    ``gpu=None`` is a GPU that vLLM cannot ask, which it treats as a small one; on a CPU the defaults grow with the
    ``world_size``; ``throughput`` (``--performance-mode``) doubles them; a batch has room for an image or video of
    ``largest_item_tokens`` that may not be cut. Raises InputError for a ``usage`` that is not in USAGES.
    Rules: vllm 0.33.0 engine/arg_utils.py:2940-3039 and :3151-3240.

    >>> from sim.hardware import find_gpu
    >>> (
    ...     default_budgets(find_gpu("H100-80GB"), "server", 131072),
    ...     default_budgets(find_gpu("A100-80GB"), "server", 131072),
    ... )
    ((8192, 1024), (2048, 256))
    """
    default_tokens, default_seqs = _defaults_by_gpu(gpu, usage, world_size)
    if throughput:
        default_tokens, default_seqs = 2 * default_tokens, 2 * default_seqs
    seqs = default_seqs if max_num_seqs is None else max_num_seqs
    if max_num_batched_tokens is None:
        tokens = default_tokens if enable_chunked_prefill else max(max_model_len, default_tokens)
        tokens = min(seqs * max_model_len, max(tokens, largest_item_tokens))
    else:
        tokens = max_num_batched_tokens
    return tokens, min(seqs, tokens) if max_num_seqs is None else seqs


def _defaults_by_gpu(gpu: Gpu | None, usage: str, world_size: int) -> tuple[int, int]:
    if usage not in USAGES:
        hint = nearest(str(usage), USAGES)
        meant = f" (nearest: '{hint}')" if hint else ""
        raise InputError(f"must be one of {', '.join(USAGES)}, got {usage!r}{meant}", where="hardware.usage")
    offline = usage == "offline"
    if gpu is not None and gpu.capability == "cpu":
        return (4096 * world_size, 256 * world_size) if offline else (2048 * world_size, 128 * world_size)
    memory = 0.0 if gpu is None else gpu.mem_gb * 1e9 / GIB
    small = gpu is None or gpu.name.startswith(("A100", "GB10"))
    if memory >= 160:
        return 16384, 1024
    if memory >= 70 and not small:
        return 16384 if offline else 8192, 1024
    return 8192 if offline else 2048, 256
