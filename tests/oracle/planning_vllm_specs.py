"""vLLM's own specs of a case's layers. Runs inside the oracle environment only."""

from __future__ import annotations

from fractions import Fraction
from typing import Any


def spec(entry: dict[str, Any]) -> Any:
    """vLLM's spec of one layer."""
    from vllm.utils.torch_utils import STR_DTYPE_TO_TORCH_DTYPE
    from vllm.v1 import kv_cache_interface as interface
    from vllm.v1.attention.backend import MultipleOf

    fields = {name: value for name, value in entry.items() if name not in ("name", "kind")}
    if "kernel_blocks" in fields:
        fields["block_stride_alignment"] = MultipleOf(fields.pop("kernel_blocks"))
    if "states_per_token" in fields:
        fields["tokens_per_state"] = Fraction(1, fields.pop("states_per_token"))
    if "cache_role" in fields:
        fields["cache_role"] = interface.SparseCacheRole(fields["cache_role"])
    if entry["kind"] == "mamba":
        fields["shapes"] = tuple(map(tuple, fields["shapes"]))
        fields["dtypes"] = tuple(STR_DTYPE_TO_TORCH_DTYPE[dtype] for dtype in fields["dtypes"])
    else:
        fields |= stored(entry)
    return getattr(interface, CLASSES[entry["kind"]])(**fields)


CLASSES = {
    "full_attention": "FullAttentionSpec",
    "sliding_window": "SlidingWindowSpec",
    "chunked_local_attention": "ChunkedLocalAttentionSpec",
    "mamba": "MambaSpec",
    "mla_attention": "MLAAttentionSpec",
    "sliding_window_mla": "SlidingWindowMLASpec",
    "cross_attention": "CrossAttentionSpec",
    "sink_full_attention": "SinkFullAttentionSpec",
    "rswa": "RSWASpec",
    "circular_buffer": "CircularBufferSpec",
    "hidden_state": "HiddenStateCacheSpec",
}
"""vLLM's class of each kind."""


def stored(entry: dict[str, Any]) -> dict[str, Any]:
    """How an attention layer stores its tokens; packed rows are published by the attention backends.

    vllm 0.33.0 v1/kv_cache_interface.py:567.
    """
    import torch
    from vllm.utils.torch_utils import STR_DTYPE_TO_TORCH_DTYPE
    from vllm.v1.kv_cache_interface import get_kv_quant_mode

    dtype = entry["dtype"]
    known = {**STR_DTYPE_TO_TORCH_DTYPE, "uint8": torch.uint8, "fp8_ds_mla": torch.uint8}
    fields: dict[str, Any] = {"dtype": known[dtype], "kv_quant_mode": get_kv_quant_mode(dtype)}
    if "mla" in entry["kind"] or entry["kind"] == "hidden_state":
        fields["cache_dtype_str"] = dtype
    if dtype == "fp8_ds_mla":
        fields["state_content_bytes"] = 656
    if dtype.endswith("_per_token_head"):
        halves = 2 if dtype.startswith("int4") else 1
        fields["state_content_bytes"] = entry["head_size"] // halves + entry["head_size_v"] // halves + 8
    return fields
