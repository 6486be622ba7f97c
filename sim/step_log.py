"""The step log: what every schedule() decided, one JSON object a line, and each request's tables when it ends.

    {"step": n, "scheduled": [[id, tokens], …], "preempted": [id, …], "hits": [[id, cached_tokens], …],
     "new_blocks": [[id, [[ids of group 0], …]], …], "free_blocks": n, "copies": [[source, destination], …]}
    {"finished": id, "tables": [[ids of group 0], …]}

Steps are numbered from 1; a schedule() that schedules nothing is neither numbered nor logged. ``free_blocks`` is taken
after scheduling, before outputs are processed. An admitted request's new blocks are its whole table, null blocks (0)
included; a request that got no block is left out of ``new_blocks``. ``copies`` are of blocks, made before the step runs
(copy-on-write of a block in which a hit ends), group by group; the key is there only in steps that have any.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any, TextIO

from sim.core.output import STEPS, TABLE_LOG_LENGTH
from sim.core.state import (
    BATCH_HEAD,
    BATCH_REQUESTS,
    D_ADMITTED,
    D_HIT,
    D_PREEMPTED,
    E_SLOT,
    E_TOKENS,
    FREE_BLOCKS,
    NUM_ADMITTED,
    NUM_BATCHES,
    NUM_COPIES,
    NUM_PREEMPTED,
    ORDINAL,
)
from sim.machine import Machine


class StepLog:
    """Turns the state of a machine after each step into log entries.

    ``name(ordinal)`` gives a request's id. The machine must have been made with ``log_tables=True``.
    """

    def __init__(self, name: Callable[[int], str]) -> None:
        self._name = name
        self._lengths: dict[int, list[int]] = {}

    def entries(self, machine: Machine) -> Iterator[dict[str, Any]]:
        """Entries of what happened since the last call: requests that finished, then the step just scheduled."""
        yield from self.finished(machine)
        yield self._step(machine)

    def finished(self, machine: Machine) -> Iterator[dict[str, Any]]:
        """Entries of the requests that finished since the last call, in order."""
        output = machine.state.output
        values = output.tables[: output.counters[TABLE_LOG_LENGTH]].tolist()
        output.counters[TABLE_LOG_LENGTH] = 0
        at = 0
        while at < len(values):
            ordinal = values[at]
            at += 1
            tables = []
            for _ in range(machine.plan.block_size.size):
                length = values[at]
                tables.append(values[at + 1 : at + 1 + length])
                at += 1 + length
            yield {"finished": self._name(ordinal), "tables": tables}

    def _step(self, machine: Machine) -> dict[str, Any]:
        queues, requests = machine.state.queues, machine.state.requests
        count = queues.counters
        depth = queues.batch.shape[0]
        batch = int(count[BATCH_HEAD] + count[NUM_BATCHES] - 1) % depth
        size = int(queues.batch[batch, BATCH_REQUESTS])
        slots = queues.entries[batch, :size, E_SLOT].tolist()
        tokens = queues.entries[batch, :size, E_TOKENS].tolist()
        admitted = queues.decided[: count[NUM_ADMITTED], D_ADMITTED : D_HIT + 1].tolist()

        def name(slot: int) -> str:
            return self._name(int(requests[slot, ORDINAL]))

        for slot, _ in admitted:
            self._lengths[slot] = [0] * machine.plan.block_size.size
        entry = {
            "step": int(machine.state.output.counters[STEPS]),
            "scheduled": [[name(slot), n] for slot, n in zip(slots, tokens, strict=True)],
            "preempted": [name(slot) for slot in queues.decided[: count[NUM_PREEMPTED], D_PREEMPTED].tolist()],
            "hits": [[name(slot), hit] for slot, hit in admitted],
            "new_blocks": [[name(slot), new] for slot in slots if any(new := self._new_blocks(machine, slot))],
            "free_blocks": int(machine.state.pool.counters[FREE_BLOCKS]),
        }
        if count[NUM_COPIES] > 0:
            entry["copies"] = machine.copies()
        return entry

    def _new_blocks(self, machine: Machine, slot: int) -> list[list[int]]:
        """Per group, the entries of the request's table that were not logged yet."""
        known = self._lengths[slot]
        lengths = machine.table_lengths(slot)
        if lengths == known:
            return []
        self._lengths[slot] = lengths
        return [table[length:] for table, length in zip(machine.block_table(slot), known, strict=True)]


def write_entry(stream: TextIO, entry: dict[str, Any]) -> None:
    """Write one entry as a line of compact JSON."""
    stream.write(json.dumps(entry, separators=(",", ":"), ensure_ascii=False) + "\n")
