"""The plan, ours against vLLM's: random layers, flags and memories, every number equal and every refusal shared.

    python tests/oracle/compare_planning.py                        # 400 cases, in the environment `make oracle` builds
    python tests/oracle/compare_planning.py --cases 5000 --seed 7
    python tests/oracle/compare_planning.py --vllm 0.34.0          # another release: lists differences, never fails

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

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT))

from sim.capacity import request_blocks  # noqa: E402 (the checkout must come first on the path)
from sim.engine_config import default_budgets  # noqa: E402
from sim.errors import InputError, RefusalError  # noqa: E402
from sim.hardware import find_gpu  # noqa: E402
from sim.planning import KVCacheMemoryError, KVCachePlan, Memory, plan_layers  # noqa: E402
from sim.units import GIB  # noqa: E402
from tests.oracle.build_venv import folder, python_of  # noqa: E402
from tests.oracle.planning_cases import Case, cases, our_engine, our_spec  # noqa: E402

WHY = {
    "engine.disable_hybrid_kv_cache_manager": "not one kind",
    "memory": "no memory",
    "engine.prefix_cache_retention_interval": "retention",
    "engine.max_num_batched_tokens": "scheduler",
    "engine.long_prefill_token_threshold": "scheduler",
}


def main() -> int:
    """Compare, print, and return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--python", help="the oracle environment's Python")
    parser.add_argument("--vllm", help="another vLLM release, whose differences are listed")
    parser.add_argument("--cases", type=int, default=400)
    parser.add_argument("--seed", type=int, default=1)
    options, _ = parser.parse_known_args()  # make oracle hands the same arguments to the comparison of schedules
    python = options.python or str(python_of(folder(options.vllm)))
    made = cases(options.seed, options.cases)
    theirs = ask_vllm(python, made)
    ours = [our_answer(case) for case in made]
    different = [number for number, case in enumerate(made) if not same(case, ours[number], theirs[number])]
    report(made, ours, theirs, different)
    return 1 if different and not options.vllm else 0


def ask_vllm(python: str, made: Sequence[Case]) -> list[Any]:
    """vLLM's answers, from one process of the oracle's environment."""
    lines = "".join(json.dumps(case) + "\n" for case in made)
    command = [python, "-m", "tests.oracle.planning_vllm"]
    done = subprocess.run(command, cwd=ROOT, input=lines, capture_output=True, text=True, check=False)
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    if done.returncode or len(answers) != len(made):
        stopped = json.dumps(made[len(answers)]) if len(answers) < len(made) else "all"
        print(done.stderr[-4000:], file=sys.stderr)
        sys.exit(f"tests/oracle: vLLM's side ended with {done.returncode} before it had answered {stopped}")
    return answers


def our_answer(case: Case) -> dict[str, Any]:
    """Our answer to one case, in the form of vLLM's side."""
    if "gpu" in case:
        given = ("max_num_batched_tokens", "max_num_seqs", "enable_chunked_prefill")
        gpu = find_gpu(case["catalogue_name"])
        chosen = default_budgets(gpu, case["usage"], case["max_model_len"], **{name: case[name] for name in given})
        return {"budgets": list(chosen)}
    try:
        engine = our_engine(case)
        memory = Memory(case["num_gpu_blocks_override"], case["memory_bytes"])
        plan = plan_layers({entry["name"]: our_spec(entry) for entry in case["layers"]}, engine, memory)
    except KVCacheMemoryError as refusal:
        numbers = {"needed": gib(refusal.needed_bytes), "available": gib(refusal.available_bytes)}
        return {"refused": {"why": "too small", **numbers, "estimate": refusal.estimated_max_len}}
    except RefusalError as refusal:
        return {"refused": {"why": WHY.get(refusal.where or "", str(refusal))}}
    except InputError as error:
        return {"error": str(error)}
    answer = describe(plan)
    answer["requests"] = [
        {"tokens": tokens, **dict(zip(("resident", "peak", "admission"), columns(plan, engine, tokens), strict=True))}
        for tokens in case["requests"]
    ]
    return answer


def gib(num_bytes: int) -> float:
    """As vLLM prints it."""
    return round(num_bytes / GIB, 2)


def columns(plan: KVCachePlan, engine: Any, tokens: int) -> list[list[int]]:
    """Resident, peak and admission blocks of all groups."""
    return [list(column) for column in zip(*request_blocks(plan, engine, tokens), strict=True)]


def describe(plan: KVCachePlan) -> dict[str, Any]:
    """Our plan in the form of vLLM's side."""
    names = ("block_bytes", "num_blocks", "scheduler_block_size", "hash_block_size", "kv_cache_size_tokens")
    groups = [
        {
            "kind": group.kind,
            "sliding_window": group.spec.sliding_window,
            "layers": list(group.layer_names),
            "block_size": group.block_size,
            "page_size_bytes": group.page_size_bytes,
            "page_size_padded": group.spec.page_size_padded,
        }
        for group in plan.groups
    ]
    return {
        "groups": groups,
        **{name: getattr(plan, name) for name in names},
        "max_concurrency": plan.max_concurrency,
        "max_in_flight_tokens": plan.max_in_flight_tokens,
        "admission_blocks": list(plan.admission_blocks),
        "spec_groups": [list(ids) for ids in plan.spec_groups],
    }


def same(case: Case, ours: dict[str, Any], theirs: dict[str, Any]) -> bool:
    """Whether the answers agree; a joint look-up is only vLLM's where it looks up several groups."""
    del case
    if theirs.get("spec_groups", 0) is None:
        return ours | {"spec_groups": None} == theirs
    return ours == theirs


def report(made: Sequence[Case], ours: Sequence[Any], theirs: Sequence[Any], different: Sequence[int]) -> None:
    """One line of counts, and the smallest difference, key by key."""
    refused = sum("refused" in answer for answer in theirs)
    hybrid = sum(len(answer.get("groups", ())) > 1 for answer in theirs)
    print(
        f"plans: {len(made) - len(different)} of {len(made)} equal to vLLM's"
        f" ({hybrid} with several groups, {refused} refusals, {sum('gpu' in case for case in made)} default budgets)"
    )
    if not different:
        return
    number = min(different, key=lambda number: len(json.dumps(made[number])))
    print(f"smallest difference, case {number}: {json.dumps(made[number])}")
    for key in sorted({*ours[number], *theirs[number]}):
        mine, vllms = ours[number].get(key), theirs[number].get(key)
        if mine != vllms:
            print(f"  {key}: ours {json.dumps(mine)}\n  {' ' * len(key)}  vLLM {json.dumps(vllms)}")


if __name__ == "__main__":
    sys.exit(main())
