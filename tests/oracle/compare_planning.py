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
from tests.oracle import planning_alignment  # noqa: E402
from tests.oracle.build_venv import folder, python_of  # noqa: E402
from tests.oracle.planning_cases import cases, our_engine  # noqa: E402
from tests.oracle.planning_specs import Case, our_spec  # noqa: E402

WHY = {
    "engine.disable_hybrid_kv_cache_manager": "not one kind",
    "memory": "no memory",
    "engine.prefix_match_unit": "match unit",
    "engine.num_speculative_tokens": "several draft modules",
    "engine.decode_context_parallel_size": "context parallel",
    "engine.kv_cache_layout": "layout",
    "engine.speculative_method": "chunks beside drafts",
    "engine.enable_prefix_caching": "nothing to cache",
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
    if "alignment" in case:
        return planning_alignment.ours(case["alignment"])
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
        return {"refused": {"why": why(refusal)}}
    except InputError as error:
        return {"error": str(error)}
    answer = describe(plan)
    answer["requests"] = [
        {"tokens": tokens, **dict(zip(("resident", "peak", "admission"), columns(plan, engine, tokens), strict=True))}
        for tokens in case["requests"]
    ]
    return answer


def why(refusal: RefusalError) -> str:
    """A refusal in one or two words, as vLLM's side says it."""
    if refusal.where == "model.layers":
        return next(
            (word for word in ("sinks", "chunks", "replayed") if word in refusal.message.replace("chunked", "chunks")),
            "pages",
        )
    return WHY.get(refusal.where or "", str(refusal))


def gib(num_bytes: int) -> float:
    """As vLLM prints it."""
    return round(num_bytes / GIB, 2)


def columns(plan: KVCachePlan, engine: Any, tokens: int) -> list[list[int]]:
    """Resident, peak and admission blocks of all groups."""
    return [list(column) for column in zip(*request_blocks(plan, engine, tokens), strict=True)]


def describe(plan: KVCachePlan) -> dict[str, Any]:
    """Our plan in the form of vLLM's side."""
    sizes = ("scheduler_block_size", "hash_block_size", "cache_hit_alignment_tokens", "kv_cache_size_tokens")
    names = ("block_bytes", "num_blocks", *sizes)
    groups = [
        {
            "kind": group.kind,
            "sliding_window": getattr(group.spec, "sliding_window", None),
            "attention_chunk_size": getattr(group.spec, "attention_chunk_size", None),
            "layers": list(group.layer_names),
            "block_size": group.block_size,
            "page_size_bytes": group.page_size_bytes,
            "page_size_padded": group.spec.page_size_padded,
            "is_eagle_group": group.is_eagle_group,
            "extra_retained_tokens": getattr(group.spec, "extra_retained_tokens", 0),
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
    """Whether the answers agree.

    A joint look-up is only vLLM's where it looks up several groups; the peak of aligned states is an upper bound.
    """
    if theirs.get("spec_groups", 0) is None:
        ours = ours | {"spec_groups": None}
    if any(entry.get("mamba_cache_mode") == "align" for entry in case.get("layers", ())):
        ours, theirs = without_bounds(ours, theirs), without_bounds(theirs, theirs)
    return ours == theirs


def without_bounds(ours: dict[str, Any], theirs: dict[str, Any]) -> dict[str, Any]:
    """Our answer, each request's peak replaced by whether it is at least vLLM's."""
    pairs = zip(ours.get("requests", ()), theirs.get("requests", ()), strict=False)
    requests = [
        mine | {"peak": all(most >= held for most, held in zip(mine["peak"], vllms["peak"], strict=True))}
        for mine, vllms in pairs
    ]
    return ours | {"requests": requests}


def report(made: Sequence[Case], ours: Sequence[Any], theirs: Sequence[Any], different: Sequence[int]) -> None:
    """One line of counts, and the smallest difference, key by key."""
    refused = sum("refused" in answer for answer in theirs)
    hybrid = sum(len(answer.get("groups", ())) > 1 for answer in theirs)
    print(
        f"plans: {len(made) - len(different)} of {len(made)} equal to vLLM's"
        f" ({hybrid} with several groups, {refused} refusals, {sum('gpu' in case for case in made)} default budgets,"
        f" {sum('alignment' in case for case in made)} block sizes for states)"
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
