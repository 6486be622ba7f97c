"""What ``vllm bench serve`` writes of a run, the few numbers of it that are read."""

from __future__ import annotations

from typing import Any

BENCH: dict[str, Any] = {
    "completed": 4,
    "max_concurrency": 2,
    "request_rate": "inf",
    "total_input_tokens": 400,
    "total_output_tokens": 40,
    "mean_ttft_ms": 50.0,
    "mean_tpot_ms": 5.0,
    "output_throughput": 300.0,
}
