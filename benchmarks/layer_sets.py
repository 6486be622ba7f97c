"""The layers that speed is measured on: one full group; hybrid models as vLLM makes them, one with drafts.

Each set comes with a pool that its traffic fills, so that requests wait and blocks are evicted.
"""

from __future__ import annotations

from typing import Any

Entry = dict[str, Any]


def _attention(heads: int, head_size: int, count: int, window: int | None = None, block_size: int = 16) -> Entry:
    """Layers with keys and values, in the form of ``tests/oracle``'s planning specs."""
    shape = {"block_size": block_size, "num_kv_heads": heads, "head_size": head_size, "head_size_v": head_size}
    entry = {"kind": "full_attention", "count": count, "dtype": "bfloat16", **shape}
    return entry if window is None else entry | {"kind": "sliding_window", "sliding_window": window}


def _qwen3_next() -> list[Entry]:
    """Three gated delta nets, then one full attention layer, twelve times; attention blocks as large as a state."""
    state = {
        "kind": "mamba",
        "mamba_cache_mode": "align",
        "block_size": 576,
        "shapes": [[3, 8192], [32, 128, 128]],
        "dtypes": ["bfloat16", "bfloat16"],
        "page_size_padded": 1_179_648,
        "num_prefill_checkpoint_blocks": 1,
        "prefill_checkpoint_alignment": 576,
        "count": 3,
    }
    return [state, _attention(2, 256, 1, block_size=576)] * 12


LAYER_SETS: dict[str, dict[str, Any]] = {
    "one full group": {"layers": [_attention(8, 128, 32)], "num_gpu_blocks": 12_000},
    "60 layers, 10 full": {
        "layers": [_attention(8, 128, 50, window=1024), _attention(8, 128, 10)],
        "num_gpu_blocks": 12_000,
    },
    "gemma-3-27b": {
        "layers": [*[_attention(16, 128, 5, window=1024), _attention(16, 128, 1)] * 10, _attention(16, 128, 2, 1024)],
        "num_gpu_blocks": 12_000,
    },
    "qwen3-next": {"layers": _qwen3_next(), "block_size": 576, "num_gpu_blocks": 400},
    "gpt-oss-120b": {
        "layers": [_attention(8, 64, 1, window=128), _attention(8, 64, 1)] * 18,
        "num_gpu_blocks": 12_000,
    },
    "gpt-oss-120b, EAGLE": {
        "layers": [
            *[_attention(8, 64, 1, window=128), _attention(8, 64, 1)] * 18,
            _attention(8, 64, 1) | {"is_draft": True},
        ],
        "num_gpu_blocks": 12_000,
        "speculative_method": "eagle3",
        "num_speculative_tokens": 3,
        "acceptance_rate": 0.7,
    },
}
"""By name: what a case's configuration needs besides the flags that all share."""
