"""KV cache events as vLLM publishes them, one JSON object a line.

    {"type": "BlockStored", "block_hashes": […], "parent_block_hash": …, "tokens": [start, end], "block_size": n,
     "group_idx": g, "kv_cache_spec_kind": …, "kv_cache_spec_sliding_window": …, "request": id}
    {"type": "BlockRemoved", "block_hashes": […], "group_idx": g}
    {"type": "AllBlocksCleared"}

The fields and their order are vLLM's (vllm 0.33.0 distributed/kv_events.py:57), with two differences: a hash is the
name of the prefix that ends with the block, 16 hexadecimal digits, equal wherever vLLM's is equal; and instead of the
token ids there is where in which request they are. A BlockStored may hold no block at all, when none of the tokens
offered was worth a key; vLLM sends it all the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from sim.core.kv_events import (
    BLOCK,
    EV_END,
    EV_GROUP,
    EV_KIND,
    EV_NAME,
    EV_ORDINAL,
    EV_SIZE,
    EV_START,
    REMOVED,
    STORED,
)
from sim.core.state import NUM_EVENTS
from sim.machine import Machine
from sim.planning import KVCacheGroup

_WORDS = {"rswa": "full_attention", "hidden_state": "mla_attention"}
"""vLLM's words for kinds that it has none of their own for (vllm 0.33.0 v1/kv_cache_interface.py:1421)."""


class KVEvents:
    """Turns a machine's log of events into entries.

    ``name(ordinal)`` gives a request's id. The machine must have been made with ``log_events=True``. What is remembered
    is a name for each cached block.
    """

    def __init__(self, name: Callable[[int], str], groups: Sequence[KVCacheGroup]) -> None:
        self._name = name
        self._kinds = [(_WORDS.get(group.kind, group.kind), group.window) for group in groups]
        self._cached: dict[int, list[Any]] = {}
        self._stored: list[int] = []

    def entries(self, machine: Machine) -> Iterator[dict[str, Any]]:
        """Entries of what happened since the last call, in order."""
        pool = machine.state.pool
        count = int(pool.counters[NUM_EVENTS])
        if count > pool.events.shape[0]:
            raise AssertionError(f"{count} KV cache events in one step, room for {pool.events.shape[0]}")
        pool.counters[NUM_EVENTS] = 0
        for row in pool.events[:count].tolist():
            if row[EV_KIND] == BLOCK:
                self._stored.append(row[EV_NAME])
            elif row[EV_KIND] == STORED:
                yield self._store(machine, row)
            elif row[EV_KIND] == REMOVED:
                yield self._remove(row[EV_NAME])
            else:
                self._cached.clear()
                yield {"type": "AllBlocksCleared"}

    def _store(self, machine: Machine, row: list[int]) -> dict[str, Any]:
        group = row[EV_GROUP]
        names, self._stored = self._stored, []
        for name in names:
            entry = self._cached.setdefault(machine.block_key(name, group), [_shown(name), group, 0])
            entry[2] += 1
        kind, window = self._kinds[group]
        return {
            "type": "BlockStored",
            "block_hashes": [_shown(name) for name in names],
            "parent_block_hash": _shown(row[EV_NAME]) if row[EV_START] else None,
            "tokens": [row[EV_START], row[EV_END]],
            "block_size": row[EV_SIZE],
            "group_idx": group,
            "kv_cache_spec_kind": kind,
            "kv_cache_spec_sliding_window": window,
            "request": self._name(row[EV_ORDINAL]),
        }

    def _remove(self, key: int) -> dict[str, Any]:
        entry = self._cached[key]
        entry[2] -= 1
        if entry[2] == 0:
            del self._cached[key]
        return {"type": "BlockRemoved", "block_hashes": [entry[0]], "group_idx": entry[1]}


def _shown(name: int) -> str:
    return f"{name:016x}"
