"""What a sweep's axes are called: the whole key and its unit; a limit says of what, and under which targets."""

from __future__ import annotations

from sim.search import KNOBS
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
    "preemptions": "times",
    "parallel_size": "ranks",
    "max_concurrency": "clients",
}
_STATISTICS = ("mean", "p50", "p90", "p99", "lowest", "highest")


def axis_label(name: str, sweep: Sweep) -> str:
    """The column's name in full, with its unit where it has one.

    A limit is what was searched, as in ``largest rate (requests/s) at which ttft_s.p99<2``.
    """
    search = sweep.points[0].search
    if search is not None and name.split(".", maxsplit=1)[0] == "limit":
        return _limit(search, name.partition(".")[2])
    unit = unit_of(name)
    return f"{name} ({unit})" if unit else name


def unit_of(name: str) -> str | None:
    """The unit of a key or column, by how it ends.

    >>> unit_of("memory.available_kv_cache_memory_gib"), unit_of("ttft_s.p99"), unit_of("seed")
    ('GiB per GPU', 's', None)
    """
    *path, last = name.split(".")
    if last in _STATISTICS and path:
        last = path[-1]
    return next((unit for ending, unit in _ENDINGS.items() if last.endswith(ending)), None)


def _limit(search: Search, which: str) -> str:
    knob = KNOBS[search.over]
    wanted = " and ".join(map(str, search.targets))
    over_seeds = f", {which} of {search.seeds} seeds" if which else ""
    return f"{'largest' if knob.most else 'smallest'} {knob.name} ({knob.unit}) at which {wanted}{over_seeds}"
