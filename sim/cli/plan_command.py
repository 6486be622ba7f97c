"""``hybridkv plan``: what fits, without a trace."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from sim.capacity import request_blocks
from sim.cli.console import print_json, print_tables
from sim.cli.plan_question import PlanFlags, PlanQuestion, read_question
from sim.engine_config import EngineConfig
from sim.errors import InputError
from sim.footprint import Deployment, Waterfall, estimate_waterfall, given_waterfall
from sim.hardware import find_gpu
from sim.planning import KVCacheMemoryError, KVCachePlan, Memory, plan_kv_cache
from sim.planning.auto_fit import auto_fit
from sim.releases import as_printed, changes_between, other_groupings, release_named
from sim.report.plan_answer import PlanAnswer
from sim.report.plan_tables import plan_data, plan_tables
from sim.scenario.checking import located
from sim.scenario.numbers import human_readable_int
from sim.units import format_gib
from sim.what_if import alternatives


def plan_command(words: Sequence[str], lengths: Sequence[str] | None, flags: PlanFlags, *, as_json: bool) -> int:
    """Plan what ``words`` ask for (a model, a file, a ``vllm serve`` line) and print the answer."""
    question = read_question(words, flags)
    with located(question.scenario.document):
        answer = with_others(answer_plan(question, lengths), question, flags)
    if flags.figure is not None:
        _draw(answer, flags.figure)
    if as_json:
        print_json(plan_data(answer))
    else:
        print_tables(plan_tables(answer))
    return 0


def answer_plan(question: PlanQuestion, lengths: Sequence[str] | None = None) -> PlanAnswer:
    """The whole answer; raises what vLLM refuses, and InputError for request lengths out of range."""
    scenario = question.scenario
    waterfall = _waterfall(question, scenario.engine)
    if waterfall is not None:
        scenario = replace(scenario, memory=_memory(waterfall))
    derived = scenario.engine.max_model_len
    if question.settings.auto_fit:
        scenario = replace(scenario, engine=auto_fit(scenario.model, scenario.engine, scenario.memory))
    plan = _plan(question, scenario.engine, scenario.memory, waterfall)
    tokens = request_lengths(lengths, scenario.engine.max_model_len) or [scenario.engine.max_model_len]

    def memory_of(engine: EngineConfig) -> Memory:
        estimated = _waterfall(question, engine)
        return _memory(estimated) if estimated is not None else Memory(kv_cache_memory_bytes=max(1, pool_bytes))

    pool_bytes = scenario.memory.bytes_for(plan.block_bytes)
    return PlanAnswer(
        scenario=scenario,
        plan=plan,
        requests={length: request_blocks(plan, scenario.engine, length) for length in tokens},
        waterfall=waterfall or given_waterfall(pool_bytes),
        alternatives=alternatives(scenario.model, scenario.engine, memory_of),
        auto_fitted_from=derived if question.settings.auto_fit else None,
        gpu_given=question.gpu_given,
        notes=question.notes,
        ignored=question.settings.ignored,
        uncounted=question.settings.uncounted,
    )


def _draw(answer: PlanAnswer, path: Path) -> None:
    """Draw the waterfall; whole or not at all."""
    from sim.report.folder import staged_path
    from sim.report.waterfall_figure import write_waterfall_figure

    model, gpu = answer.scenario.model, answer.scenario.gpu or "a GPU that is not named"
    with staged_path(path) as staged:
        write_waterfall_figure(staged, answer.waterfall, f"{model.name} on {gpu}; {answer.startup_line}")


def with_others(answer: PlanAnswer, question: PlanQuestion, flags: PlanFlags) -> PlanAnswer:
    """The answer with what was asked for besides: other releases, other sizes of groups."""
    scenario, given = answer.scenario, question.settings.engine
    named = [release_named(text, flag) for flag, text in flags.releases]

    def pool(utilization: float) -> tuple[int, bool]:
        if not question.estimate_memory:
            return scenario.memory.bytes_for(answer.plan.block_bytes), False
        default = question.settings.gpu_memory_utilization is None
        settings = replace(question.settings, gpu_memory_utilization=utilization) if default else question.settings
        waterfall = _waterfall(replace(question, settings=settings), scenario.engine)
        return (waterfall.kv_cache.num_bytes if waterfall else 0), default

    printed = [as_printed(scenario.model, scenario.engine, given, release, pool) for release in named]
    changes = changes_between(scenario.model, named[0], named[1]) if named else []
    sizes = flags.group_sizes
    groupings = other_groupings(scenario.model, scenario.engine, answer.plan.pool_bytes, sizes) if sizes else ()
    return replace(answer, releases=tuple(printed), release_changes=tuple(changes), groupings=groupings)


def _plan(question: PlanQuestion, engine: EngineConfig, memory: Memory, waterfall: Waterfall | None) -> KVCachePlan:
    """The plan; a refusal for want of memory that was only estimated says so."""
    try:
        return plan_kv_cache(question.scenario.model, engine, memory)
    except KVCacheMemoryError as error:
        if waterfall is not None:
            error.message = _refusal_of_estimate(error, engine.max_model_len, waterfall)
            error.args = (str(error),)
        raise


def _refusal_of_estimate(error: KVCacheMemoryError, max_model_len: int, waterfall: Waterfall) -> str:
    """By how much the estimated memory misses what one request needs, whether that is sure, and what would decide."""
    needed, available = format_gib(error.needed_bytes), format_gib(error.available_bytes)
    missing = round(float(needed) - float(available), 2)  # of the numbers beside it
    fits = error.estimated_max_len
    unsure = error.needed_bytes - error.available_bytes <= waterfall.kv_cache.spread_bytes
    verdict = (
        "the estimate may be wrong by more than that, so vLLM may start or refuse; to decide, give"
        " --available-kv-cache-memory-gib as a vLLM startup log has it ('Available KV cache memory')"
        if unsure
        else "more than the estimate's error: vLLM refuses to start; give more memory"
    )
    shorter = f"--max-model-len {fits}, the longest that fits the estimate" if fits > 0 else "a smaller --max-model-len"
    return (
        f"one request of max_model_len ({max_model_len}) tokens needs {needed} GiB of KV cache,"
        f" {available} GiB are available by estimate, {missing} GiB too little:"
        f" {verdict}, or {shorter} (KV cache memory: {waterfall.kv_cache}; weights: {waterfall.weights})"
    )


def _waterfall(question: PlanQuestion, engine: EngineConfig) -> Waterfall | None:
    """Where the memory goes under ``engine``, None where the KV cache's memory was given."""
    if not question.estimate_memory:
        return None
    settings, gpu = question.settings, question.scenario.gpu
    if gpu is None:
        raise InputError("no GPU to estimate the memory of; name one, or give the KV cache's memory", where="--gpu")
    deployment = Deployment(
        gpu_memory_utilization=settings.gpu_memory_utilization,
        quantization=settings.quantization,
        cpu_offload_gb=settings.cpu_offload_gb,
        data_parallel_size=settings.data_parallel_size,
        enable_expert_parallel=settings.enable_expert_parallel,
        cuda_graphs=settings.cuda_graphs,
        vocab_size=question.vocab_size,
    )
    return estimate_waterfall(question.scenario.model, engine, find_gpu(gpu), deployment)


def _memory(waterfall: Waterfall) -> Memory:
    return Memory(kv_cache_memory_bytes=waterfall.kv_cache.num_bytes)


def request_lengths(texts: Sequence[str] | None, max_model_len: int) -> list[int]:
    """The lengths given with ``--request-tokens``, commas allowed; InputError outside 1 … ``max_model_len``."""
    lengths = []
    for text in (part for given in texts or () for part in given.split(",")):
        try:
            length = human_readable_int(text)
        except ValueError as error:
            raise InputError(f"got {text!r}; {error}", where="--request-tokens") from error
        if not 1 <= length <= max_model_len:
            raise InputError(f"got {length:,}; a request has 1 to {max_model_len:,} tokens", where="--request-tokens")
        lengths.append(length)
    return list(dict.fromkeys(lengths))
