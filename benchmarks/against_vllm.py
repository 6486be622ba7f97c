"""Our scheduler against vLLM's own, taking the same decisions on the same requests, in turn, in the same minutes.

    python -m benchmarks.against_vllm [--python .venv-oracle/bin/python] [--requests 500] [--rounds 3] [--only NAME]

500 requests (mean prompt 3,300, mean output 210) on each of the layer sets of ``layer_sets.py``, vLLM's defaults on
both sides. vLLM's time is that of its schedule() and update_from_output() calls alone: no request is built and no
prompt hashed in it. Ours is that of the whole engine, requests handed over included, code compiled before. Both are
CPU-seconds of the thread that does it, since a step of either waits for nothing, and others may use the machine.
"""

from __future__ import annotations

import argparse
import time
from typing import Any

import numpy as np

from benchmarks.layer_sets import LAYER_SETS
from sim.core.output import PREEMPTION_COUNT
from sim.engine import Engine
from sim.machine import Machine, make_plan
from tests.oracle import build_venv
from tests.oracle.oracle import Oracle
from tests.oracle.our_side import batch_of, plan_of, price_of

MEAN_PROMPT, MEAN_OUTPUT = 3300, 210
RUNS_EACH_SIDE = 20


def benchmark_case(layers: str, requests: int, seed: int = 0) -> dict[str, Any]:
    """The requests and the engine, as both sides take them; lengths are lognormal with the means fixed exactly."""
    rng = np.random.default_rng(seed)
    prompts = _with_mean(rng.lognormal(0.0, 0.8, requests), MEAN_PROMPT, 16, 14_000)
    outputs = _with_mean(rng.lognormal(0.0, 0.9, requests), MEAN_OUTPUT, 2, 2_000)
    arrivals = np.cumsum(rng.exponential(0.12, requests))
    flags = {
        "block_size": 16,
        "max_model_len": 16_384,
        "max_num_batched_tokens": 8_192,
        "max_num_seqs": 1_024,
        "prefix_cache_retention_interval": 0,
        "async_scheduling": True,
        "step_seconds": 0.03,
    }
    return {
        "name": "benchmark",
        "quiet": True,
        "config": flags | LAYER_SETS[layers],
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


def our_run(case: dict[str, Any]) -> tuple[float, int, int]:
    """CPU-seconds of our engine on the case, its steps and its preemptions."""
    plan, flags = plan_of(case["config"])
    batch = batch_of(case["requests"])
    machine = Machine(make_plan(plan, flags), price_of(case["config"], flags), plan.num_blocks)
    began = time.thread_time()
    engine = Engine(machine, iter([batch]))
    engine.run()
    seconds = time.thread_time() - began
    return seconds, machine.num_steps, int(machine.state.output.counters[PREEMPTION_COUNT])


def _vllm_run(oracle: Oracle, case: dict[str, Any]) -> tuple[float, int, int]:
    (done,) = [line["done"] for line in oracle.lines(case) if "done" in line]
    return float(done["seconds"]), int(done["steps"]), int(done["preemptions"])


def _round(oracle: Oracle, layers: str, case: dict[str, Any]) -> None:
    """Both sides, ours as the mean of as many runs before as after; they must have done the same.

    vLLM's run takes seconds, in which the machine is now faster, now slower: ours have to be spread as well.
    """
    before = [our_run(case) for _ in range(RUNS_EACH_SIDE)]
    theirs, *decided = _vllm_run(oracle, case)
    runs = before + [our_run(case) for _ in range(RUNS_EACH_SIDE)]
    ours = sum(seconds for seconds, *_ in runs) / len(runs)
    found = list(runs[0][1:])
    if any(list(run[1:]) != decided for run in runs):
        raise SystemExit(f"{layers}: steps and preemptions {found} here, {decided} in vLLM: not the same work")
    print(
        f"{layers:<20} vLLM {theirs:6.2f} s   hybridkv {ours:7.4f} s   ratio {theirs / ours:4.0f}"
        f"   ({found[0]:,} steps, {found[1]} preemptions)",
        flush=True,
    )


def main() -> None:
    """Run both sides in turn and print the ratio of every round."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--python", default=str(build_venv.python_of(build_venv.folder(build_venv.pinned_version()))))
    parser.add_argument("--requests", type=int, default=500)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", choices=LAYER_SETS, help="one of the layer sets")
    options = parser.parse_args()
    with Oracle(options.python) as oracle:
        for layers in [options.only] if options.only else LAYER_SETS:
            warm, case = benchmark_case(layers, 20), benchmark_case(layers, options.requests)
            _vllm_run(oracle, warm)
            our_run(warm)
            for _ in range(options.rounds):
                _round(oracle, layers, case)


if __name__ == "__main__":
    main()
