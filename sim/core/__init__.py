"""The exact machine: vLLM 0.33.0's scheduler and KV cache manager over flat arrays, compiled; no clock, no objects."""
