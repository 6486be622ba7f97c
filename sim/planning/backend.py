"""One kind of attention kernels, and what decides which are asked for: the device, and the dtype of the cache."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from sim.engine_config import EngineConfig
from sim.models import Model

FULL_DTYPES: Final = ("auto", "float16", "bfloat16")
FP8: Final = ("fp8", "fp8_e4m3")


@dataclass(frozen=True, slots=True)
class Backend:
    """Kernels by vLLM's name: block sizes in tokens that they take whole, or multiples of the only one.

    ``unit``: blocks of one layer may be multiples of it, where that is less than blocks of the whole model are.
    ``stride_rows``, ``stride_tokens``: blocks lie whole pages of so many rows or tokens apart (None: nothing is asked).
    """

    name: str
    sizes: tuple[int, ...]
    multiples: bool = True
    unit: int | None = None
    stride_rows: int | None = None
    stride_tokens: int | None = None

    def takes(self, block_size: int) -> bool:
        """Whether blocks of ``block_size`` tokens can be cut into kernel blocks."""
        return any(block_size % size == 0 for size in self.sizes)

    def largest_within(self, block_size: int) -> int:
        """The largest kernel block of at most ``block_size`` tokens, or the smallest there is.

        vllm 0.33.0 model_executor/layers/attention/attention.py:101.

        >>> Backend("FLASHINFER", (16, 32, 64), multiples=False).largest_within(832)
        64
        >>> Backend("FLASH_ATTN", (16,)).largest_within(832)
        832
        """
        if self.multiples:
            size = self.unit or self.sizes[0]
            return max(size, block_size // size * size)
        return max((size for size in self.sizes if size <= block_size), default=min(self.sizes))


def resolved_kv_cache_dtype(model: Model, engine: EngineConfig) -> str:
    """``--kv-cache-dtype`` after vLLM resolved ``auto``: by the checkpoint, by the model class, or auto still.

    vllm 0.33.0 utils/torch_utils.py (resolve_kv_cache_dtype_string) and model_executor/models/config.py:94.
    """
    if engine.kv_cache_dtype != "auto":
        return engine.kv_cache_dtype
    if model.kv_cache_dtype is not None:
        return model.kv_cache_dtype
    on_blackwell = model.kernels is not None and model.kernels.quantized_on_blackwell and major_of(engine) == 10
    return "fp8_e4m3" if on_blackwell else "auto"


def major_of(engine: EngineConfig) -> int:
    """The major number of CUDA's device capability, 0 elsewhere."""
    head = engine.device_capability.split(".")[0]
    return int(head) if head.isdigit() else 0
