"""The replay through the Triton kernel, interpreted: run as a script, it prints kernels, errors and what was wrong.

TRITON_INTERPRET=1 python -m tests.gpu_check.cases_triton
"""

from __future__ import annotations

import json

import torch

from gpu_check.content.check import LIMITS, sized_cache
from gpu_check.content.recording import record
from gpu_check.content.replay import Replay
from gpu_check.content.small import Size
from tests.gpu_check.cases import case_of, small_workload


def main() -> None:
    """Replay a few requests in both dtypes."""
    engine = {"max_model_len": 256, "max_num_batched_tokens": 64, "max_num_seqs": 4}
    case = case_of("gpt-oss-20b", 140, budget=1 << 30, engine=engine, workload=small_workload(3, 60, 4))
    recording = record(case)
    for dtype in LIMITS:
        cache = sized_cache(case, dtype, Size(layers=1, kv_heads=1, queries=2, head_size=16))
        replay = Replay(case.plan, recording, cache, getattr(torch, dtype), torch.device("cpu"), "triton")
        with torch.inference_mode():
            replay.run()
        print(json.dumps([dtype, replay.kernels, replay.errors, dict(replay.findings.wrong)]))


if __name__ == "__main__":
    main()
