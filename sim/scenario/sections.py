"""Short sections of a scenario, checked: replicas, what is measured, resets of the prefix cache."""

from __future__ import annotations

from typing import Any

from sim.engine_config import EngineConfig
from sim.measure import Measure, WarmStart
from sim.scenario.checking import check, error_at
from sim.scenario.schema import MeasureKeys, ReplicaKeys, ResetKeys, ScenarioKeys, WarmStartKeys
from sim.scenario.strict_yaml import Document

_TRANSFER = ("transfer_s_per_block", "transfer_gb_per_s")
"""What a block takes on its way, in either of two words."""


def replica_keys(given: dict[str, Any], engine: EngineConfig, document: Document) -> ReplicaKeys:
    """The ``replicas`` section. Raises InputError beside data-parallel engines, which are replicas too."""
    keys = check(ReplicaKeys, given, document, ("replicas",))
    apart = keys.prefill is not None
    if keys.servers > 1 and engine.data_parallel_size > 1:
        where = ("replicas", "prefill" if apart else "count")
        raise error_at(document, where, "cannot stand beside data_parallel_size; give one of the two")
    for name in ("prefill", "decode", "decode_routing", *_TRANSFER, "transfer_latency_s"):
        if getattr(keys, name) is not None and None in (keys.prefill, keys.decode):
            raise error_at(document, ("replicas", name), "needs prefill: n and decode: m beside it")
    if apart and keys.count > 1:
        raise error_at(document, ("replicas", "count"), "cannot stand beside prefill and decode; leave it out")
    if apart and sum(getattr(keys, name) is not None for name in _TRANSFER) != 1:
        raise error_at(document, ("replicas",), f"with prefill and decode give one of {' and '.join(_TRANSFER)}")
    return keys


def measure_of(given: dict[str, Any], document: Document) -> Measure:
    """The ``measure`` section. Raises InputError for an interval that holds nothing."""
    keys = check(MeasureKeys, given, document, ("measure",))
    if keys.until_s is not None and keys.until_s <= keys.after_s:
        raise error_at(document, ("measure", "until_s"), f"got {keys.until_s:g}; give more than after_s")
    if keys.warm_start is None:
        return Measure(keys.after_s, keys.until_s)
    warm = check(WarmStartKeys, keys.warm_start, document, ("measure", "warm_start"))
    return Measure(keys.after_s, keys.until_s, WarmStart(warm.requests))


def resets_of(keys: ScenarioKeys, document: Document) -> tuple[tuple[int, bool], ...]:
    """The resets of the prefix cache in order of time."""
    given = [
        check(ResetKeys, entry, document, ("reset_prefix_cache", position))
        for position, entry in enumerate(keys.reset_prefix_cache)
    ]
    return tuple(sorted((round(reset.at_s * 1e9), reset.reset_running_requests) for reset in given))
