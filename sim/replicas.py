"""Replicas (``data_parallel_size``): engines that share nothing, among which requests are dealt out in turn.

Each has a pool, a queue and a scheduler of its own, and the same plan and step times. Request i of the workload, in
order of arrival, goes to replica i modulo their number. vLLM's front end counts instead, and sends a request to the
replica with the fewest others just then (vllm 0.33.0 v1/engine/core_client.py:1786). Replicas of a model with experts
run in step there, with empty batches where one is idle; that costs time and is left out here, as is the prefill they
hold back together.

Since they share nothing, replicas run one after another, and the result does not depend on who ran when.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from sim.errors import InputError
from sim.measure import Measure
from workloads.batch import OPEN_LOOP, RequestBatch

_OF_ONE = frozenset({"name", "num_blocks", "num_groups", "kv_cache_size_tokens", "max_concurrency", "latency_class"})
"""What is the same for every replica, and said of one."""


def share_of(batches: Iterator[RequestBatch], replica: int, replicas: int) -> Iterator[RequestBatch]:
    """The requests of one replica: every ``replicas``-th, from number ``replica`` on.

    >>> from workloads.batch import from_table
    >>> content, tokens = np.ones((3, 2), np.uint64), np.full((3, 2), 4)
    >>> batches = [from_table(["a", "b", "c"], np.arange(3), content, tokens)] * 2
    >>> [batch.ids for batch in share_of(iter(batches), 1, 2)]
    [['b'], ['a', 'c']]
    """
    seen = 0
    for batch in batches:
        if replicas > 1 and (batch.think_ns > OPEN_LOOP).any():
            raise InputError(
                "sessions that wait for answers cannot be dealt out to data_parallel_size engines; give "
                "replicas: {count: n, routing: round_robin} instead",
                where="engine.data_parallel_size",
            )
        mine = np.arange((replica - seen) % replicas, len(batch), replicas)
        seen += len(batch)
        if mine.size:
            yield batch.take(mine)


def merged_columns(parts: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The rows of all replicas, one replica after another, with the number of each in a column ``replica``."""
    lengths = [len(next(iter(part.values()))) for part in parts]
    columns: dict[str, Any] = {"replica": np.repeat(np.arange(len(parts)), lengths)}
    for name, first in parts[0].items():
        if isinstance(first, list):
            columns[name] = [value for part in parts for value in part[name]]
        else:
            columns[name] = np.concatenate([part[name] for part in parts])
    return columns


def of_replica(columns: Mapping[str, Any], replica: int, by: str = "replica") -> dict[str, Any]:
    """The rows of one replica; ``by`` names the column that says whose a row is."""
    mine = np.flatnonzero(columns[by] == replica)
    return {
        name: [values[i] for i in mine.tolist()] if isinstance(values, list) else values[mine]
        for name, values in columns.items()
    }


def merged_summary(parts: Sequence[Mapping[str, Any]], requests: Mapping[str, Any], measure: Measure) -> dict[str, Any]:
    """The summaries of all replicas as one, with each replica's own counts under ``replicas``.

    Counts are summed. Peaks are those of the replica where they are highest; means are per replica, weighted by the
    time it was busy; rates are of all replicas over the time from the first arrival to the last finish.
    """
    total = {key: _merged(key, [part[key] for part in parts]) for key in parts[0]}
    queries = total["prefix_cache_queries_tokens"]
    total["prefix_cache_hit_rate"] = total["prefix_cache_hit_tokens"] / queries if queries else None
    makespan = max(total["last_finish_s"] - (total["first_arrival_s"] or 0.0), 0.0)
    total["makespan_s"] = makespan
    total["output_tokens_per_s"] = total["output_tokens"] / makespan if makespan else None
    total["requests_per_s"] = total["finished"] / makespan if makespan else None
    for key in ("mean_running", "mean_used_blocks"):
        seconds = [(part[key] or 0) * part["busy_s"] for part in parts]
        total[key] = sum(seconds) / total["busy_s"] if total["busy_s"] else None
    total |= {**measure.latencies(requests), **measure.rates(requests)}
    return {**total, "workload": parts[0]["workload"], "replicas": [_own(part) for part in parts]}


def _merged(key: str, values: Sequence[Any]) -> Any:
    """One entry of the summaries as one: counts summed, also inside mappings; what cannot be is the first one's."""
    given = [value for value in values if value is not None]
    if key in _OF_ONE or not given:
        return values[0]
    if isinstance(given[0], list):
        return [_merged(key, list(values)) for values in zip(*given, strict=True)]
    if isinstance(given[0], Mapping):
        return {name: _merged(name, [value.get(name) for value in given]) for name in given[0]}
    if not isinstance(given[0], int | float):
        return given[0]
    if key == "first_arrival_s":
        return min(given)
    return max(given) if key.startswith("peak_") or key == "last_finish_s" else sum(given)


def _own(part: Mapping[str, Any]) -> dict[str, Any]:
    """What differs between replicas: numbers, without the plan's."""
    return {key: value for key, value in part.items() if key not in _OF_ONE and isinstance(value, int | float | None)}
