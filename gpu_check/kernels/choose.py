"""Which kernel a check uses: the first that serves all shapes and agrees with gathered blocks on this very device."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from gpu_check.kernels.batch import Batch, make_batch
from gpu_check.kernels.paged import KERNELS, prepare, unsupported
from gpu_check.kernels.shape import AttentionShape

TOLERANCE = {"float32": 1e-5, "bfloat16": 2e-2, "float16": 5e-3}
"""Largest difference to gathered blocks in float32, of values that are normally distributed."""
_REQUESTS = ((75, 1), (40, 17), (1, 1))
"""(Tokens in the cache, new ones) of the requests that kernels are compared on."""


@dataclass(frozen=True, slots=True)
class Chosen:
    """The kernel, its largest difference to gathered blocks, what it may be, and why others were not taken."""

    name: str
    error: float
    tolerance: float
    passed_over: tuple[str, ...]


def choose_kernel(shapes: Sequence[AttentionShape], device: Any) -> Chosen:
    """The kernel for these shapes; on a CPU gathered blocks, as Triton's interpreter is there to be right, not fast."""
    reasons: list[str] = []
    for name in KERNELS if device.type == "cuda" else ("gather",):
        why = next((why for shape in shapes if (why := unsupported(name, shape))), None)
        if why is None:
            found = agreement(name, shapes, device)
            if isinstance(found, float) and found <= _tolerance(shapes):
                return Chosen(name, found, _tolerance(shapes), tuple(reasons))
            why = f"differs by {found:.2g} from gathered blocks" if isinstance(found, float) else found
        reasons.append(f"{name}: {why}")
    raise RuntimeError("no kernel computes attention here: " + "; ".join(reasons))


def agreement(kernel: str, shapes: Sequence[AttentionShape], device: Any) -> float | str:
    """The largest difference between ``kernel`` and gathered blocks in float32, or why the kernel does not run."""
    try:
        return max(_difference(kernel, shape, device) for shape in shapes)
    except Exception as problem:  # noqa: BLE001 - a library that fails in whatever way is one that is not used
        return (str(problem) or type(problem).__name__).splitlines()[0]


def _tolerance(shapes: Sequence[AttentionShape]) -> float:
    return TOLERANCE[str(shapes[0].dtype).removeprefix("torch.")]


def _difference(kernel: str, shape: AttentionShape, device: Any) -> float:
    import torch

    generator = torch.Generator().manual_seed(0)
    batch, blocks = _problem(shape, generator, device)

    def noise(*size: int) -> Any:
        return torch.randn(size, generator=generator).to(device, shape.dtype)

    query = noise(batch.num_tokens, shape.num_heads, shape.head_size)
    k_cache, v_cache = (
        noise(blocks, shape.block_size, shape.num_kv_heads, size) for size in (shape.head_size, shape.head_size_v)
    )
    out = query.new_empty((batch.num_tokens, shape.num_heads, shape.head_size_v))
    prepare(kernel, shape, batch)(query, k_cache, v_cache, out)
    exact = torch.empty_like(out, dtype=torch.float32)
    prepare("gather", replace(shape, dtype=torch.float32), batch)(
        query.float(), k_cache.float(), v_cache.float(), exact
    )
    difference = (out.float() - exact).abs().max()
    return float(difference) if bool(difference.isfinite()) else float("inf")


def _problem(shape: AttentionShape, generator: Any, device: Any) -> tuple[Batch, int]:
    """Requests of which one is longer than the window by some blocks, over shuffled blocks."""
    import torch

    extra = min(shape.window or shape.chunk, 512)
    requests = [(end + extra, new) if new < end else (end, new) for end, new in _REQUESTS]
    width = max(-(-end // shape.block_size) for end, _ in requests)
    table = (torch.randperm(len(requests) * width, generator=generator) + 1).view(len(requests), width)
    ends, news = [end for end, _ in requests], [new for _, new in requests]
    return make_batch(table.to(device, torch.int32), ends, news), table.numel() + 1
