"""The bytes of the KV cache, ours against vLLM's: random layers, flags and layouts, every view at the same place.

    python tests/oracle/compare_buffers.py                        # 400 cases, in the environment `make oracle` builds
    python tests/oracle/compare_buffers.py --cases 5000 --seed 7
    python tests/oracle/compare_buffers.py --vllm 0.34.0          # another release: lists differences, never fails

Exit code 1 and the smallest differing case, when there is one; otherwise one line with the counts.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT))

from gpu_check.memory.layout import layer_places  # noqa: E402 (the checkout must come first on the path)
from sim.engine_config.checks import KV_CACHE_LAYOUTS  # noqa: E402
from sim.errors import InputError  # noqa: E402
from sim.planning import Memory, plan_layers  # noqa: E402
from sim.planning.sizing import block_bytes_of  # noqa: E402
from sim.planning.stages import split_groups, split_layers  # noqa: E402
from tests.oracle.build_venv import folder, python_of  # noqa: E402
from tests.oracle.planning_cases import our_engine, random_engine  # noqa: E402
from tests.oracle.planning_specs import Case, our_spec, random_layers  # noqa: E402


def main() -> int:
    """Compare, print, and return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--python", help="the oracle environment's Python")
    parser.add_argument("--vllm", help="another vLLM release, whose differences are listed")
    parser.add_argument("--cases", type=int, default=400)
    parser.add_argument("--seed", type=int, default=1)
    options, _ = parser.parse_known_args()  # make oracle hands the same arguments to the comparison of schedules
    made = [buffer_case(np.random.default_rng([options.seed, number, 3])) for number in range(options.cases)]
    theirs = ask_vllm(options.python or str(python_of(folder(options.vllm))), made)
    ours = [our_buffers(case) for case in made]
    different = [number for number, answer in enumerate(ours) if answer not in (None, theirs[number])]
    report(made, ours, theirs, different)
    return 1 if different and not options.vllm else 0


def buffer_case(rng: np.random.Generator) -> Case:
    """Layers and flags as in the comparison of plans, short contexts, any layout, and a pool that holds one request."""
    engine = random_engine(rng)
    layers = random_layers(rng, engine)
    for entry in layers:
        if entry["kind"] == "cross_attention":
            engine["enable_prefix_caching"] = False
    engine |= {
        "max_model_len": 16,
        "kv_cache_layout": str(rng.choice(KV_CACHE_LAYOUTS)) if rng.random() < 0.7 else engine["kv_cache_layout"],
        "pipeline_parallel_size": min(len(layers), engine["pipeline_parallel_size"]),
        "long_prefill_token_threshold": 0,
        "enable_chunked_prefill": True,
        "prefix_match_unit": None,
        "prefix_cache_retention_interval": None,
        "speculative_method": None,
        "num_speculative_tokens": 0,
    }
    blocks = int(rng.integers(1, 400)) + 2 * len(layers) + 2 * engine["max_num_batched_tokens"]
    return {"layers": layers, "engine": engine, "num_gpu_blocks_override": blocks}


def ask_vllm(python: str, made: Sequence[Case]) -> list[Any]:
    """vLLM's answers, from one process of the oracle's environment."""
    lines = "".join(json.dumps(case) + "\n" for case in made)
    command = [python, "-m", "tests.oracle.buffers_vllm"]
    done = subprocess.run(command, cwd=ROOT, input=lines, capture_output=True, text=True, check=False)
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    if done.returncode or len(answers) != len(made):
        stopped = json.dumps(made[len(answers)]) if len(answers) < len(made) else "all"
        print(done.stderr[-4000:], file=sys.stderr)
        sys.exit(f"tests/oracle: vLLM's side ended with {done.returncode} before it had answered {stopped}")
    return answers


def our_buffers(case: Case) -> list[dict[str, Any]] | None:
    """Our answer to one case, in the form of vLLM's side; None where vLLM refuses to start, here or later.

    A group of several specs without a layer on a stage is planned, but the worker there fails: it goes through the
    layers that the group has elsewhere (vllm 0.33.0 v1/core/kv_cache_planning.py:700 and v1/worker/utils.py:601).
    """
    layers = {entry["name"]: our_spec(entry) for entry in case["layers"]}
    try:
        engine = our_engine(case)
        plan = plan_layers(layers, engine, Memory(num_gpu_blocks_override=case["num_gpu_blocks_override"]))
    except InputError:
        return None
    stages = split_groups(plan.groups, split_layers(tuple(layers), engine.pipeline_parallel_size))
    if any(group.uniform_type and not group.layer_names for groups in stages for group in groups):
        return None
    answers = []
    for groups in stages:
        block_bytes = block_bytes_of(groups, block_outermost=engine.block_outermost)
        places = layer_places(groups, plan.num_blocks, engine.kv_cache_layout, block_bytes)
        views = {place.name: [place.offset, list(place.shape), list(place.strides)] for place in places}
        answers.append({"bytes": plan.num_blocks * block_bytes, "layers": dict(sorted(views.items()))})
    return answers


def report(made: Sequence[Case], ours: Sequence[Any], theirs: Sequence[Any], different: Sequence[int]) -> None:
    """One line of counts, or the smallest case that differs."""
    if not different:
        layouts = {case["engine"]["kv_cache_layout"] for case, answer in zip(made, ours, strict=True) if answer}
        views = sum(len(stage["layers"]) for answer in ours if answer for stage in answer)
        refused = sum(answer is None for answer in ours)
        print(
            f"buffers: {len(made)} cases, no difference: {views} layers of {len(made) - refused} plans in"
            f" {len(layouts)} layouts at the same bytes, {refused} refused"
        )
        return
    smallest = min(different, key=lambda number: len(made[number]["layers"]))
    print(f"buffers: {len(different)} of {len(made)} cases differ; the smallest:")
    for title, value in (("case", made), ("ours", ours), ("vLLM", theirs)):
        print(f"{title}: {json.dumps(value[smallest])}")


if __name__ == "__main__":
    sys.exit(main())
