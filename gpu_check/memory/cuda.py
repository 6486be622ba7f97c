"""What only a GPU can tell: free memory before and after, and the largest pool that its allocator gives."""

from __future__ import annotations

from typing import Any

import torch

from gpu_check.claims import Claim, judged, not_tested
from gpu_check.device import Device
from sim.units import cdiv

GRANULE = 2 << 20
"""Bytes that CUDA maps memory in."""
SLACK = 32 << 20
"""Bytes that the driver may keep for itself when a pool takes all there is."""

_FREE = "free memory that the pool takes"
_LARGEST = "largest pool that the device gives"


def warm_up(device: Device) -> None:
    """Let CUDA load what filling a tensor takes, so that only the pool changes the free memory afterwards."""
    if device.is_cuda:
        torch.zeros(GRANULE, dtype=torch.int8, device=device.torch_device)
        torch.cuda.synchronize()
        torch.cuda.empty_cache()


def free_memory_claim(device: Device, num_bytes: int, before: int, after: int) -> Claim:
    """Whether the driver's free memory shrank by the pool, rounded up to what CUDA maps at once."""
    predicted = cdiv(num_bytes, GRANULE) * GRANULE
    if not device.is_cuda:
        why = "a CPU's memory is shared with the rest of the machine"
        return not_tested("memory", _FREE, why, predicted=predicted, unit="bytes")
    measured = before - after
    granule = f"{GRANULE >> 20} MiB"
    note = f"{predicted - num_bytes:,} bytes of the prediction are the allocator's rounding to {granule}"
    holds = abs(predicted - measured) <= GRANULE
    return judged("memory", _FREE, predicted, measured, holds, unit="bytes", tolerance=granule, note=note)


def largest_pool_claim(device: Device, block_bytes: int) -> Claim:
    """Allocate all blocks that the free memory holds, or, where that fails, the most that do not."""
    if not device.is_cuda:
        return not_tested("memory", _LARGEST, "a CPU gives more memory than there is", unit="blocks")
    torch.cuda.empty_cache()
    free = device.free_bytes()
    predicted = free // block_bytes
    low, high = 0, predicted
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if _fits(middle * block_bytes, device.torch_device) else (low, middle - 1)
    holds = predicted - low <= cdiv(SLACK, block_bytes)
    tolerance = f"{SLACK >> 20} MiB"
    return judged("memory", _LARGEST, predicted, low, holds, unit="blocks", tolerance=tolerance)


def _fits(num_bytes: int, device: Any) -> bool:
    try:
        torch.empty(num_bytes, dtype=torch.int8, device=device)
    except torch.OutOfMemoryError:
        return False
    finally:
        torch.cuda.empty_cache()
    return True
