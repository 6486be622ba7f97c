"""Layers and their KV cache specs from a ``config.json``, ours against vLLM's own model classes on a described GPU.

    python tests/oracle/compare_models.py             # 172 configs, in the environment `make oracle` builds
    python tests/oracle/compare_models.py --cases 1000 --seed 7 --gpu b200
    python tests/oracle/compare_models.py --configs ../shared/data/model_configs --cases 600

The models of the catalogue, or the configs of a folder, first; then with other sizes and flags. Layers and specs must
be equal, and what follows from them: vLLM's default budgets on the device, groups, and the plan in 40 GiB. vLLM's
classes are built on the meta device. Where vLLM fails on a config that we plan, its error is counted and, with
``--verbose``, printed: a random config may be one that no kernel takes. Exit code 1 and the differences, when there
are some.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT))

from sim.engine_config import EngineConfig, default_budgets  # noqa: E402 (the checkout must come first on the path)
from sim.errors import InputError  # noqa: E402
from sim.hardware import find_gpu  # noqa: E402
from sim.models import Model, model_from_config  # noqa: E402
from sim.models.model_types import model_types  # noqa: E402
from sim.planning import KVCacheMemoryError, Memory, effective_engine, layer_specs, plan_kv_cache, smallest_batch  # noqa: E402
from sim.planning.refusals import check_model  # noqa: E402
from sim.specs import KernelBlocks, MambaSpec, Spec  # noqa: E402
from tests.oracle.build_venv import folder, python_of  # noqa: E402
from tests.oracle.model_cases import model_cases  # noqa: E402

GPUS = {"h100": "H100-80GB", "b200": "B200", "a100": "A100-80GB"}
MEMORY = Memory(kv_cache_memory_bytes=40 << 30)
PLANNED = (
    *("block_bytes", "num_blocks", "kv_cache_size_tokens", "max_concurrency", "max_in_flight_tokens"),
    *("scheduler_block_size", "hash_block_size"),
)
STATE_FIELDS = (
    *("block_size", "shapes", "dtypes", "mamba_cache_mode", "num_prefill_checkpoint_blocks"),
    *("prefill_checkpoint_alignment", "num_speculative_blocks"),
)
FIELDS = (
    *("block_size", "num_kv_heads", "head_size", "head_size_v", "sliding_window", "attention_chunk_size"),
    *("tokens_per_state", "topk_buffer_width"),
)


def main() -> int:
    """Compare, print, and return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--python", help="the oracle environment's Python")
    parser.add_argument("--vllm", help="another vLLM release, whose differences are listed")
    parser.add_argument("--cases", type=int, default=172)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--gpu", choices=GPUS, default="h100")
    parser.add_argument("--configs", type=Path, help="a folder of config.json files, instead of the catalogue")
    parser.add_argument("--verbose", action="store_true", help="print where vLLM fails and we do not")
    options, _ = parser.parse_known_args()
    made = list(model_cases(options.seed, options.cases, options.configs))
    known, *theirs = ask_vllm(options.python or str(python_of(folder(options.vllm))), options.gpu, [{}, *made])
    unknown = sorted({*known["model_types"]} - model_types())
    counts = {"equal": 0, "refused by both": 0, "vLLM fails": 0, "different": 0}
    layers = 0
    for case, answer in zip(made, theirs, strict=True):
        ours = our_answer(case, options.gpu)
        verdict, text = compare(ours, answer)
        counts[verdict] += 1
        layers += len(answer["specs"]) if verdict == "equal" else 0
        if verdict == "different" or (options.verbose and verdict == "vLLM fails"):
            print(f"{case['name']}, {json.dumps(case['flags'])}: {text}")
    print(f"models: {', '.join(f'{count} {verdict}' for verdict, count in counts.items())}; {layers} layers equal")
    if unknown:
        print(f"model types that vLLM reads and we refuse: {', '.join(unknown)}")
    return 1 if (counts["different"] or unknown) and not options.vllm else 0


def ask_vllm(python: str, gpu: str, made: Sequence[dict[str, Any]]) -> list[Any]:
    """vLLM's answers, from one process of the oracle's environment."""
    lines = "".join(json.dumps(case) + "\n" for case in made)
    command = [python, "-m", "tests.oracle.models_vllm", gpu]
    done = subprocess.run(command, cwd=ROOT, input=lines, capture_output=True, text=True, check=False)
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    if len(answers) != len(made):
        sys.exit(f"tests/oracle: vLLM's side ended with {done.returncode}: {done.stderr[-3000:]}")
    return answers


def our_answer(case: dict[str, Any], gpu: str) -> dict[str, Any]:
    """The same of ours."""
    try:
        model = model_from_config(case["config"])
        engine = engine_on(gpu, model, case["flags"])
        check_model(model, engine)
        specs = list(layer_specs(model, engine).values())
        plan = our_plan(model, engine) if specs else {}
    except InputError as error:
        return {"error": str(error)}
    return {"specs": specs, "max_model_len": model.max_model_len, "dtype": model.dtype, "plan": plan}


def engine_on(gpu: str, model: Model, flags: dict[str, Any]) -> EngineConfig:
    """The engine that serves ``model`` there with ``flags`` and nothing else given."""
    device = find_gpu(GPUS[gpu])
    tokens, seqs = default_budgets(
        device,
        "server",
        flags.get("max_model_len", model.max_model_len),
        max_num_batched_tokens=flags.get("max_num_batched_tokens"),
        max_num_seqs=flags.get("max_num_seqs"),
        largest_item_tokens=smallest_batch(model, flags),
    )
    return EngineConfig(
        **{
            "max_model_len": model.max_model_len,
            "device_capability": device.capability,
            "flashinfer_gdn_prefill": gpu != "a100",
            "enable_prefix_caching": model.prefix_caching_by_default,
            "async_scheduling": not (model.kernels and model.kernels.pooling),
            **flags,
            "kv_cache_dtype_skip_layers": tuple(flags.get("kv_cache_dtype_skip_layers", ())),
            "max_num_batched_tokens": tokens,
            "max_num_seqs": seqs,
        },
    )


def our_plan(model: Model, engine: EngineConfig) -> dict[str, Any]:
    """Our plan in 40 GiB, at the longest request that is accepted there."""
    try:
        plan = plan_kv_cache(model, engine, MEMORY)
    except KVCacheMemoryError as refusal:
        plan = plan_kv_cache(model, replace(engine, max_model_len=refusal.estimated_max_len), MEMORY)
    return {
        "layout": effective_engine(model, engine).kv_cache_layout,
        "groups": [[len(group.layer_names), group.block_size, group.page_size_bytes] for group in plan.groups],
        **{name: getattr(plan, name) for name in PLANNED},
    }


def compare(ours: dict[str, Any], theirs: dict[str, Any]) -> tuple[str, str]:
    """A verdict, and what differs."""
    if "error" in theirs:
        return ("refused by both", "") if "error" in ours else ("vLLM fails", theirs["error"])
    if "error" in ours:
        return "different", f"ours refuses ({ours['error']})"
    for key in ("max_model_len", "dtype"):
        if ours[key] != theirs[key]:
            return "different", f"{key} is {ours[key]}, vLLM's is {theirs[key]}"
    if len(ours["specs"]) != len(theirs["specs"]):
        return "different", f"{len(ours['specs'])} layers with a cache, vLLM has {len(theirs['specs'])}"
    for number, (spec, fields) in enumerate(zip(ours["specs"], theirs["specs"], strict=True)):
        mine = in_fields(spec)
        wrong = {key: (value, fields.get(key)) for key, value in mine.items() if value != fields.get(key, _none(key))}
        if wrong:
            return "different", f"spec {number}: {wrong} (ours, vLLM's)"
    wrong = {key: (value, theirs["plan"].get(key)) for key, value in ours["plan"].items()}
    wrong = {key: pair for key, pair in wrong.items() if pair[0] != pair[1]}
    return ("different", f"plan: {wrong} (ours, vLLM's)") if wrong else ("equal", "")


def _none(key: str) -> Any:
    return 1 if key == "tokens_per_state" else None


def in_fields(spec: Spec) -> dict[str, Any]:
    """A spec of ours by vLLM's names."""
    names = STATE_FIELDS if isinstance(spec, MambaSpec) else FIELDS
    fields = {name: getattr(spec, name, None) for name in names}
    if isinstance(spec, MambaSpec):
        fields |= {"shapes": [list(shape) for shape in spec.shapes], "dtypes": list(spec.dtypes)}
    else:
        alignment = spec.block_stride_alignment
        fields["block_stride_alignment"] = (
            f"MultipleOf({alignment.tokens})" if isinstance(alignment, KernelBlocks) else alignment
        )
    return {"class": type(spec).__name__, "page_size_bytes": spec.page_size_bytes, **fields}


if __name__ == "__main__":
    sys.exit(main())
