"""``hybridkv new``: from a model or a ``vllm serve`` line, a trace and some GPUs to a scenario file."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from sim.cli.plan_command import answer_plan
from sim.cli.plan_question import PlanFlags, PlanQuestion, read_question
from sim.errors import InputError, RefusalError
from sim.footprint import Amount
from sim.models import load_model
from sim.report.folder import staged_file
from sim.scenario import Document, build_scenario, dump_yaml
from workloads import open_workload

DEFAULT_GPU = "H100-80GB"


def new_command(file: Path, words: Sequence[str], trace: str | None, gpus: Sequence[str], memory: str | None) -> int:
    """Write a scenario of ``words`` on ``gpus``, the first of them as it stands and the others as variants."""
    if file.exists():
        raise InputError("exists; give another name or remove it", where=str(file))
    named = list(dict.fromkeys(gpus or [DEFAULT_GPU]))
    answers = {gpu: _answer(words, gpu, memory) for gpu in named}
    fitting = {gpu: found for gpu, found in answers.items() if not isinstance(found, RefusalError)}
    for gpu, found in answers.items():
        if isinstance(found, RefusalError):
            sys.stderr.write(f"hybridkv: {gpu} is left out: {found}\n")
    if not fitting:
        raise next(found for found in answers.values() if isinstance(found, RefusalError))
    mapping, comments = _scenario(file, fitting, trace)
    text = "".join(f"# {line}\n" for line in comments) + dump_yaml(mapping)
    _check(mapping, file, trace)
    with staged_file(file) as stream:
        stream.write(text)
    sys.stdout.write(f"{file}: {', '.join(fitting)}; next: hybridkv compare {file}\n")
    return 0


_Answer = tuple[PlanQuestion, Amount]


def _answer(words: Sequence[str], gpu: str, memory: str | None) -> _Answer | RefusalError:
    """The question on one GPU, and the KV cache's memory there; or the line with which vLLM refuses to start."""
    question = read_question(words, PlanFlags(gpu=gpu, available_kv_cache_memory_gib=memory))
    name = question.scenario.document.value.get("model")
    if not isinstance(name, str) or question.scenario.model != load_model(name):
        raise InputError("changes the model itself, which this command cannot write down; write the scenario by hand")
    try:
        return question, answer_plan(question).waterfall.kv_cache
    except RefusalError as error:
        return error


def _scenario(file: Path, fitting: dict[str, _Answer], trace: str | None) -> tuple[dict[str, Any], list[str]]:
    (first, (question, kv_cache)), *others = fitting.items()
    model = question.scenario.document.value["model"]
    traffic = trace or "a synthetic load"
    asked = f"Which of {', '.join(fitting)}" if others else f"What does one {first}"
    verb = "serves" if others else "give"
    mapping: dict[str, Any] = {
        "question": f"{asked} {verb} {model} under {Path(traffic).name}, and how well?",
        "model": model,
        "hardware": {"gpu": first, "usage": question.scenario.usage},
        "engine": {key: value for key, value in question.settings.engine.items() if value is not None},
        "memory": {"kv_cache_memory_bytes": kv_cache.num_bytes},
        "workload": _workload(file, trace),
    }
    if others:
        mapping["variants"] = {
            gpu: {"hardware": {"gpu": gpu}, "memory": {"kv_cache_memory_bytes": amount.num_bytes}}
            for gpu, (_, amount) in fitting.items()
        }
    comments = [f"KV cache memory of each {gpu}: {amount}" for gpu, (_, amount) in fitting.items()]
    ignored = [flag for flag, _ in question.settings.ignored]
    return mapping, comments + ([f"flags without effect here: {', '.join(ignored)}"] if ignored else [])


def _workload(file: Path, trace: str | None) -> dict[str, Any]:
    """The trace, named as seen from the scenario's folder; or a load to start from."""
    if trace is None:
        tokens = {"kind": "lognormal", "mean": 1500, "cv": 1.2, "max": 16000}
        answers = {"kind": "lognormal", "mean": 300, "cv": 0.8, "max": 4000}
        arrival = {"kind": "poisson", "rate_per_s": 1}
        return {"synthetic": {"requests": 500, "arrival": arrival, "prompt_tokens": tokens, "output_tokens": answers}}
    if trace.startswith("sample:"):
        return {"trace": trace}
    if not Path(trace).is_file():
        raise InputError("no such file", where=trace)
    return {"trace": os.path.relpath(trace, file.parent)}


def _check(mapping: dict[str, Any], file: Path, trace: str | None) -> None:
    """Raise what would be wrong with the scenario, and with its traffic, before anything is written."""
    scenario = build_scenario(Document(str(file), mapping), file.parent.resolve())
    workload = scenario.workload
    if trace is not None and not trace.startswith("sample:"):  # the scenario's folder need not be there yet
        workload = {**workload, "trace": str(Path(trace).resolve())}
    for name in scenario.variants:
        scenario.variant(name)
    open_workload(workload, scenario.base_dir, scenario.seed)
