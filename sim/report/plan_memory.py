"""The memory of one GPU, and the same model under other settings, as tables."""

from __future__ import annotations

from sim.report.plan_answer import PlanAnswer
from sim.report.tables import Table, number
from sim.units import GIB, format_bytes
from sim.what_if import Alternative

_NAMES = {
    "total": "GPU memory",
    "requested": "share vLLM may use",
    "weights": "- weights",
    "activations": "- activations",
    "graphs": "- CUDA graphs",
    "kv_cache": "= KV cache",
}


def memory_tables(answer: PlanAnswer) -> list[Table]:
    """The waterfall, if it was estimated: each number with how well it is known."""
    fall = answer.waterfall
    if fall.requested is None:
        return []
    share = f"gpu_memory_utilization {fall.utilization:g}, {'given' if fall.utilization_given else 'the default'}"
    rows = []
    for name, amount in fall.steps():
        known = amount.source if amount.source != "estimate" else f"estimate ± {amount.spread_bytes / GIB:.2f}"
        rows.append((_NAMES[name], f"{amount.num_bytes / GIB:.2f}", share if name == "requested" else known))
    notes = ["GiB; an estimate is replaced by --available-kv-cache-memory-gib from a startup log"]
    return [Table(f"Memory of each {answer.scenario.gpu}", ("", "GiB", ""), rows, notes, prose=True)]


def alternative_tables(answer: PlanAnswer) -> list[Table]:
    """One row per changed setting."""
    if len(answer.alternatives) < 2:
        return []
    rows = [_row(item) for item in answer.alternatives]
    how = "estimated for each row" if answer.waterfall.requested is not None else "the same KV cache memory per GPU"
    header = ("", "GPUs", "KV per GPU", "block_size", "tokens", "max concurrency")
    return [Table("One setting changed", header, rows, [f"{how}; - = vLLM refuses to start"])]


def _row(item: Alternative) -> tuple[str, ...]:
    if item.kv_cache_size_tokens is None:
        fits = f"fits {item.estimated_max_len:,}" if item.estimated_max_len else "-"
        return (item.label, number(item.num_gpus), "-", "-", "-", fits)
    return (
        item.label,
        number(item.num_gpus),
        format_bytes(item.pool_bytes or 0),
        number(item.block_size),
        number(item.kv_cache_size_tokens),
        f"{item.max_concurrency:.2f}x",
    )
