"""``plan --vllm`` and ``plan --diff``: what releases print; ``plan --what-if-group-size``: other groupings."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from sim.releases import Grouping, Printed
from sim.report.tables import Table, number, share
from sim.units import format_bytes

_ROWS: tuple[tuple[str, Callable[[Printed], str]], ...] = (
    ("pool per GPU", lambda printed: format_bytes(printed.pool_bytes)),
    ("gpu_memory_utilization", lambda printed: str(printed.gpu_memory_utilization or "memory given")),
    ("groups", lambda printed: number(printed.num_groups)),
    ("padding layers", lambda printed: number(printed.padding_layers)),
    ("block size", lambda printed: f"{printed.block_size:,} tokens"),
    ("bytes per block", lambda printed: number(printed.block_bytes)),
    ("blocks", lambda printed: number(printed.num_blocks)),
    ("blocks a full request is charged", lambda printed: number(printed.request_blocks)),
    ("prefix caching", lambda printed: "on" if printed.prefix_caching else "off"),
    ("GPU KV cache size (tokens)", lambda printed: number(printed.tokens)),
    ("Maximum concurrency", lambda printed: f"{printed.max_concurrency:.2f}x"),
)


def release_table(releases: Sequence[Printed], reasons: Sequence[str]) -> Table:
    """The releases side by side, differing rows marked, and why they differ."""
    rows = []
    for label, cell in _ROWS:
        cells = [cell(printed) for printed in releases]
        rows.append((label, *cells, "" if len(set(cells)) == 1 else "differs"))
    header = ("", *(f"vLLM {printed.release}" for printed in releases), "")
    notes = list(reasons) or ["no rule that this model meets changed between these releases"]
    return Table("What other releases print", header, rows, notes)


def grouping_table(groupings: Sequence[Grouping]) -> Table:
    """Sizes of groups side by side."""
    rows = [
        (
            found.label,
            number(found.layers_per_group),
            number(found.num_groups),
            "-" if found.padding_share is None else f"{number(found.padding_layers)} ({share(found.padding_share, 1)})",
            number(found.table_entries),
            number(found.tokens),
            "refused" if found.max_concurrency is None else f"{found.max_concurrency:.2f}x",
        )
        for found in groupings
    ]
    header = ("", "layers per group", "groups", "padding", "table entries", "tokens", "max concurrency")
    notes = ["table entries: of one request of max_model_len, over all groups; the same pool for every grouping"]
    return Table("Other group sizes", header, rows, notes + [f"{g.label}: {g.refusal}" for g in groupings if g.refusal])
