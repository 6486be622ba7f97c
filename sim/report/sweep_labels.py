"""What a sweep's axes are called: the whole key and its unit; a limit says of what, and under which targets."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from sim.search import KNOBS, Knob, Target
from sim.search.knobs import MEMORY_UNITS
from sim.sweeps import Search, Sweep

_ENDINGS = {
    "requests_per_s": "requests/s",
    "tokens_per_s": "tokens/s",
    "rate_per_s": "requests/s",
    "hit_rate": "share of prompt tokens",
    "hit_tokens": "tokens",
    "_tokens": "tokens",
    "_gib": "GiB per GPU",
    "_bytes": "bytes",
    "_blocks": "blocks",
    "blocks_override": "blocks",
    "_s": "s",
    "max_model_len": "tokens",
    "block_size": "tokens",
    "match_unit": "tokens",
    "retention_interval": "tokens",
    "token_threshold": "tokens",
    "num_seqs": "requests",
    "running": "requests",
    "waiting": "requests",
    "requests": "requests",
    "finished": "requests",
    "rejected": "requests",
    "truncated": "requests",
    "preemptions": "times",
    "parallel_size": "ranks",
    "steps": "steps",
    "num_groups": "KV cache groups",
}
_WHOLE = {"workload.max_concurrency": "requests in flight", "max_concurrency": "requests of max_model_len"}
"""Units of names whose ending says too little."""
_STATISTICS = ("mean", "p50", "p90", "p99", "lowest", "highest")


def axis_label(name: str, sweep: Sweep) -> str:
    """The column's name in full, with its unit where it has one.

    A limit is what was searched, as in ``largest rate (requests/s) at which ttft_s.p99<2 s``.
    """
    search = sweep.points[0].search
    if search is not None and is_limit(name):
        return _limit(search, sweep, name.partition(".")[2])
    unit = unit_of(name)
    return f"{name} ({unit})" if unit else name


def is_limit(name: str) -> bool:
    """Whether a column is the limit that was searched, or its spread over seeds."""
    return name in ("limit", "limit.lowest", "limit.highest")


def wanted(targets: Sequence[Target]) -> str:
    """The targets in words, times with their unit.

    >>> from sim.search import parse_targets
    >>> wanted(parse_targets("ttft_s.p99<1.0, preemptions<10"))
    'ttft_s.p99<1 s and preemptions<10'
    """
    return " and ".join(f"{target} s" if target.statistic else str(target) for target in targets)


def knob_label(knob: Knob) -> str:
    """What was searched, as in ``rate (requests/s)``."""
    return f"{knob.name} ({knob.unit})"


def unit_of(name: str) -> str | None:
    """The unit of a key or column, by how it ends.

    >>> unit_of("memory.available_kv_cache_memory_gib"), unit_of("ttft_s.p99"), unit_of("seed")
    ('GiB per GPU', 's', None)
    """
    if name in _WHOLE:
        return _WHOLE[name]
    *path, last = name.split(".")
    if last in _STATISTICS and path:
        last = path[-1]
    return next((unit for ending, unit in _ENDINGS.items() if last.endswith(ending)), None)


def knob_in(sweep: Sweep, search: Search) -> Knob:
    """The knob of a sweep's searches, in the unit that its first point gives memory in."""
    knob = KNOBS[search.over]
    memory = sweep.points[0].document.value.get("memory")
    given = [unit for key, unit in MEMORY_UNITS.items() if isinstance(memory, dict) and key.split(".")[1] in memory]
    return replace(knob, unit=given[0]) if search.over == "memory" and given else knob


def _limit(search: Search, sweep: Sweep, which: str) -> str:
    over_seeds = f", {which} of {search.seeds} seeds" if which else ""
    return f"{limit_question(knob_in(sweep, search), search.targets)}{over_seeds}"


def limit_question(knob: Knob, targets: Sequence[Target]) -> str:
    """What a search looks for, as in ``largest rate (requests/s) at which ttft_s.p99<2 s``."""
    return f"{'largest' if knob.most else 'smallest'} {knob_label(knob)} at which {wanted(targets)}"
