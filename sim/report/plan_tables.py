"""What ``plan`` answers, as plain data for ``--json`` and as tables."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import Any

from sim.capacity import RequestBlocks
from sim.planning import KVCacheGroup, KVCachePlan, most_running, seqs_warning, smallest_hit
from sim.report.plan_answer import PlanAnswer
from sim.report.plan_memory import alternative_tables, memory_tables
from sim.report.release_tables import grouping_table, release_table
from sim.report.tables import Table, layers_line, number
from sim.units import format_bytes


def plan_data(answer: PlanAnswer) -> dict[str, Any]:
    """The plan as JSON-ready data; each group carries its three numbers for the first of the request lengths."""
    plan, scenario = answer.plan, answer.scenario
    first = next(iter(answer.requests))
    hit = smallest_hit(plan, scenario.engine)
    return {
        "model": scenario.model.name,
        "num_blocks": plan.num_blocks,
        "num_groups": len(plan.groups),
        "kv_cache_size_tokens": plan.kv_cache_size_tokens,
        "max_concurrency": plan.max_concurrency,
        "max_model_len": plan.max_model_len,
        "max_num_batched_tokens": scenario.engine.max_num_batched_tokens,
        "max_num_seqs": scenario.engine.max_num_seqs,
        "max_in_flight_tokens": plan.max_in_flight_tokens,
        "block_bytes": plan.block_bytes,
        "pool_bytes": plan.pool_bytes,
        "scheduler_block_size": plan.scheduler_block_size,
        "hash_block_size": plan.hash_block_size,
        "smallest_hit_prompt_tokens": hit and hit.prompt_tokens,
        "smallest_hit_why": hit and hit.why,
        "most_running_requests": most_running(plan, scenario.engine),
        "max_num_seqs_warning": seqs_warning(plan, scenario.engine),
        "request_tokens": first,
        "groups": [{**_group(plan, i), **blocks._asdict()} for i, blocks in enumerate(answer.requests[first])],
        "requests": [
            {"tokens": tokens, "groups": [blocks._asdict() for blocks in per_group], **_sums(per_group)}
            for tokens, per_group in answer.requests.items()
        ],
        **answer.as_data(),
    }


def plan_tables(answer: PlanAnswer) -> list[Table]:
    """The tables ``plan`` prints."""
    return [
        _summary(answer),
        _groups(answer.plan),
        *(_request(tokens, blocks) for tokens, blocks in answer.requests.items()),
        *memory_tables(answer),
        *alternative_tables(answer),
        *([release_table(answer.releases, answer.release_changes)] if answer.releases else []),
        *([grouping_table(answer.groupings)] if answer.groupings else []),
    ]


def group_label(group: KVCacheGroup) -> str:
    """A group's kind with its window or chunk, as in ``sliding_window 1,024``."""
    size = group.window or group.chunk_size or group.rswa_window
    return group.kind if size is None else f"{group.kind} {size:,}"


def spans(rows: Sequence[tuple[str, ...]]) -> list[tuple[str, ...]]:
    """Rows numbered from 0 in their first cell, neighbours that are equal made one.

    >>> spans([("a",), ("a",), ("b",)])
    [('0-1', 'a'), ('2', 'b')]
    """
    numbered: list[tuple[str, ...]] = []
    for row, equal in groupby(enumerate(rows), key=lambda item: item[1]):
        indices = [index for index, _ in equal]
        first, last = indices[0], indices[-1]
        numbered.append((str(first) if first == last else f"{first}-{last}", *row))
    return numbered


def _group(plan: KVCachePlan, index: int) -> dict[str, Any]:
    group = plan.groups[index]
    return {
        "kind": group.kind,
        "window": group.window or group.chunk_size or group.rswa_window,
        "layers": len(group.layer_names),
        "padding": group.padding_layers,
        "block_size": group.block_size,
        "page_size_bytes": group.page_size_bytes,
    }


def _sums(per_group: Sequence[RequestBlocks]) -> dict[str, int]:
    return {name: sum(getattr(blocks, name) for blocks in per_group) for name in RequestBlocks._fields}


def _summary(answer: PlanAnswer) -> Table:
    scenario, plan = answer.scenario, answer.plan
    engine, model = scenario.engine, scenario.model
    budgets = f"max_num_batched_tokens {engine.max_num_batched_tokens:,}, max_num_seqs {engine.max_num_seqs:,}"
    block, pool = format_bytes(plan.block_bytes), format_bytes(plan.pool_bytes)
    rows = [
        ("model", f"{model.name}: {layers_line(model)}"),
        ("hardware", f"{_hardware(answer)}; {budgets}"),
        ("pool", f"{plan.num_blocks:,} blocks of {block} = {pool} per GPU"),
        ("vLLM prints", answer.startup_line),
        ("block size", answer.block_size_reason()),
        ("waste", _waste(answer)),
        ("a request", f"{format_bytes(answer.fixed_bytes)} + {format_bytes(round(answer.bytes_per_token))} per token"),
    ]
    if answer.auto_fitted_from is not None:
        rows.insert(3, ("fitted", f"max_model_len {plan.max_model_len:,} of {answer.auto_fitted_from:,}"))
    if answer.max_num_seqs_limit is not None:
        rows.append(("max_num_seqs", f"at most {answer.max_num_seqs_limit:,}, a block of states each"))
    return Table("What fits", ("", ""), rows, _notes(answer), prose=True)


def _hardware(answer: PlanAnswer) -> str:
    scenario = answer.scenario
    gpus = scenario.engine.tensor_parallel_size * scenario.engine.pipeline_parallel_size
    times = f"{gpus} x " if gpus > 1 else ""
    assumed = "" if answer.gpu_given else " assumed (--gpu)"
    return f"{times}{scenario.gpu or 'unknown GPU'}{assumed}, {scenario.usage}"


def _waste(answer: PlanAnswer) -> str:
    plan = answer.plan
    layers = f"{plan.padding_layers} of {plan.padding_layers + sum(len(group.layer_names) for group in plan.groups)}"
    words = [f"{layers} layers are padding ({100 * answer.padding_share:.2f} %)"]
    if answer.state_padding_share is not None:
        words.append(f"pages of states are padded by {100 * answer.state_padding_share:.2f} %")
    words.append(f"a request's last blocks: up to {format_bytes(len(plan.groups) * plan.block_bytes)}")
    return "; ".join(words)


def _notes(answer: PlanAnswer) -> list[str]:
    plan, engine = answer.plan, answer.scenario.engine
    hit, warning = smallest_hit(plan, engine), seqs_warning(plan, engine)
    notes = [*([hit.why] if hit else []), *([f"warning: {warning}"] if warning else []), *answer.notes]
    if answer.uncounted:
        notes.append("not in the estimate: " + ", ".join(f"{flag} ({what})" for flag, what in answer.uncounted))
    if answer.ignored:
        notes.append("ignored, cannot matter: " + ", ".join(f"{flag} ({what})" for flag, what in answer.ignored))
    return notes


def _groups(plan: KVCachePlan) -> Table:
    rows = [
        (
            group_label(group),
            number(len(group.layer_names)),
            number(group.padding_layers),
            number(group.block_size),
            number(group.page_size_bytes),
        )
        for group in plan.groups
    ]
    return Table("KV cache groups", ("", "kind", "layers", "padding", "block_size", "page_size_bytes"), spans(rows))


def _request(tokens: int, per_group: Sequence[RequestBlocks]) -> Table:
    rows = spans([tuple(map(number, blocks)) for blocks in per_group])
    return Table(
        f"One request of {tokens:,} tokens",
        ("group", *RequestBlocks._fields),
        [*rows, ("all", *map(number, _sums(per_group).values()))],
        ["per group; resident: after window freeing, peak: held at most during prefill, admission: what vLLM charges"],
    )
