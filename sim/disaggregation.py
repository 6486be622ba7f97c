"""Prefill and decode on different replicas: what such a run can do, and its results as the client sees them.

    sent |-- queue_s --|-- prefill_s --|-- decode_queue_s --|-- transfer_s --|-- first_decode_s --| first token
         prefill replica                 decode replica: until it has blocks   fetched

The five parts add up to ``ttft_s``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sim.core.output import L_BLOCKS, L_END, L_ORDINAL, L_START
from sim.core.state import CHUNKED_LOCAL, FULL, SLIDING_WINDOW, Plan
from sim.errors import InputError
from sim.measure import Measure
from sim.replicas import merged_columns, merged_summary

TTFT_PARTS = ("queue_s", "prefill_s", "decode_queue_s", "transfer_s", "first_decode_s")
_SECONDS = 1e-9
_OF_DECODE = ("finished", "truncated", "output_tokens")
_OF_PREFILL = ("requests", "rejected", "prefix_cache_queries_tokens", "prefix_cache_hit_tokens")


def refuse_undisaggregated(plan: Plan, *, resets: bool) -> None:
    """Raise InputError for what prefill and decode replicas are not modelled with; the message says so."""
    for asked, key, what in (
        (plan.num_spec_tokens > 0, "engine.speculative_method", "drafts"),
        (plan.priority_policy, "engine.scheduling_policy", "the priority policy"),
        (plan.prefill_schedule_interval > 1, "engine.prefill_schedule_interval", "held-back prefill"),
        (plan.partial_hits, "engine.prefix_match_unit", "hits inside a block"),
        (resets, "reset_prefix_cache", "resets of the prefix cache"),
        (not np.isin(plan.kind, (FULL, SLIDING_WINDOW, CHUNKED_LOCAL)).all(), "model", _KINDS),
        (plan.prefix_replay_tokens > 0, "model", _KINDS),
    ):
        if asked:
            raise InputError(
                f"{what}: not modelled for prefill and decode replicas; give replicas: {{count: n}}", where=key
            )


_KINDS = "layers other than full attention, sliding windows and chunked local attention"


def seen_by_clients(
    prefill: Sequence[Mapping[str, Any]],
    decode: Sequence[Mapping[str, Any]],
    ordinals: Sequence[Sequence[NDArray[np.int64]]],
    loads: NDArray[np.int64],
) -> dict[str, Any]:
    """The requests that decode replicas finished, with what prefill replicas did for them and the parts of their TTFT.

    ``ordinals``: the running numbers of the rows of each prefill and of each decode replica; ``loads`` as
    `DisaggregatedFleet.loads` has them. ``replica`` numbers the prefill replicas first.
    """
    of_prefill, columns = merged_columns(prefill), merged_columns(decode)
    order = np.argsort(np.concatenate(ordinals[0]))
    number = np.concatenate(ordinals[1])
    row = order[np.searchsorted(np.concatenate(ordinals[0])[order], number)]
    fetched = np.searchsorted(loads[:, L_ORDINAL], number) if len(loads) else np.zeros(len(number), np.int64)
    inside = np.minimum(fetched, max(len(loads) - 1, 0))
    was_fetched = loads[inside, L_ORDINAL] == number if len(loads) else np.zeros(len(number), np.bool_)

    def loaded(field: int) -> NDArray[np.float64]:
        """From a fetch's record; what fetches nothing is there as soon as it is scheduled."""
        if not len(loads):
            return np.asarray(columns["first_scheduled_s"])
        return np.asarray(np.where(was_fetched, loads[inside, field] * _SECONDS, columns["first_scheduled_s"]))

    start, end = loaded(L_START), loaded(L_END)
    sent, first = of_prefill["arrival_s"][row], columns["first_token_s"]
    return columns | {
        "replica": columns["replica"] + len(prefill),
        "prefill_replica": of_prefill["replica"][row],
        "arrival_s": sent,
        "first_scheduled_s": of_prefill["first_scheduled_s"][row],
        "cached_tokens": of_prefill["cached_tokens"][row],
        "decode_cached_tokens": columns["cached_tokens"],
        "fetched_blocks": np.where(was_fetched, loads[inside, L_BLOCKS], 0) if len(loads) else np.zeros_like(number),
        "preemptions": columns["preemptions"] + of_prefill["preemptions"][row],
        "queue_s": of_prefill["queue_s"][row],
        "prefill_s": of_prefill["finish_s"][row] - of_prefill["first_scheduled_s"][row],
        "decode_queue_s": start - of_prefill["finish_s"][row],
        "transfer_s": end - start,
        "first_decode_s": first - end,
        "ttft_s": first - sent,
        "e2e_s": columns["finish_s"] - sent,
    }


def split_summary(
    prefill: Sequence[Mapping[str, Any]],
    decode: Sequence[Mapping[str, Any]],
    requests: Mapping[str, Any],
    measure: Measure,
) -> dict[str, Any]:
    """The summaries of all replicas as one: outputs of those that decode, look-ups of those that prefill.

    ``decode_prefix_cache_…`` are what decode replicas had of the prompts already and need not fetch; ``ttft_parts``
    are the means and percentiles of the parts of the time to first token.
    """
    total = merged_summary([*prefill, *decode], requests, measure)
    of_prefill, of_decode = merged_summary(prefill, requests, measure), merged_summary(decode, requests, measure)
    total |= {key: of_decode[key] for key in _OF_DECODE} | {key: of_prefill[key] for key in _OF_PREFILL}
    total["prefix_cache_hit_rate"] = of_prefill["prefix_cache_hit_rate"]
    for name in ("queries_tokens", "hit_tokens"):
        total[f"decode_prefix_cache_{name}"] = of_decode[f"prefix_cache_{name}"]
    makespan = total["makespan_s"]
    total["output_tokens_per_s"] = total["output_tokens"] / makespan if makespan else None
    total["requests_per_s"] = total["finished"] / makespan if makespan else None
    total["ttft_parts"] = measure.latencies(requests, TTFT_PARTS)
    total["fetched_blocks"] = int(np.sum(requests["fetched_blocks"]))
    roles = ["prefill"] * len(prefill) + ["decode"] * len(decode)
    own = [{"role": role, **part} for role, part in zip(roles, total["replicas"], strict=True)]
    return {**total, **measure.rates(requests), "replicas": own}
