"""hybridkv: what a vLLM engine with its hybrid KV cache manager will do, simulated block for block."""

from __future__ import annotations
