"""Names of storage types, as vLLM spells them, to torch's."""

from __future__ import annotations

from typing import Any

_TORCH = {
    "float32": "float32",
    "float16": "float16",
    "bfloat16": "bfloat16",
    "fp8": "float8_e4m3fn",
    "fp8_e4m3": "float8_e4m3fn",
    "fp8_e5m2": "float8_e5m2",
    "fp8_per_token_head": "float8_e4m3fn",
    "int8_per_token_head": "int8",
    "int4_per_token_head": "uint8",
    "uint8": "uint8",
    "fp8_ds_mla": "uint8",
}
"""vllm 0.33.0 utils/torch_utils.py:40-66."""


def torch_dtype(name: str) -> Any:
    """The ``torch.dtype`` in which vLLM views a cache of the dtype ``name``."""
    import torch

    return getattr(torch, _TORCH[name])
