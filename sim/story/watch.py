"""The life of one request, seen from outside: when it came in and why not sooner, what it hit, held, gave back, lost.

A :class:`RequestWatch` reads the machine after every schedule() and keeps what concerns one request. Its happenings are
plain mappings, ready for JSON: ``kind`` with ``step`` and ``time_s``, and what each kind adds:

    waited      steps, until_step, until_s, reason
    admitted    known_tokens, hit_tokens, seen_tokens, lost [[cause, tokens, group], …], blocks [per group]
    prefilled   tokens
    decoded     tokens, until_step, until_s
    freed       blocks [[group, ids], …], until_step, until_s    left behind a window, a chunk or a state
    copied      blocks [[from, to], …]                           before they are written on
    preempted   name, by (ids; None: a reset)
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sim.core.seen import L_GROUP, L_HIT, L_LOST, L_ORDINAL, L_SEEN, LOST_ROWS
from sim.core.state import (
    ARRIVAL,
    BATCH_HEAD,
    BATCH_REQUESTS,
    D_ADMITTED,
    D_PREEMPTED,
    D_PREEMPTED_FOR,
    E_SLOT,
    E_TOKENS,
    FREE_SLOT,
    NUM_ADMITTED,
    NUM_BATCHES,
    NUM_COPIES,
    NUM_PREEMPTED,
    NUM_TOKENS,
    ORDINAL,
    PREEMPTIONS,
    RUNNING,
    STATUS,
)
from sim.explanation import CAUSES
from sim.machine import Machine
from sim.story.waiting import why_waiting

Happening = dict[str, Any]


class RequestWatch:
    """What happens to the request called ``name``, step by step; nothing before :meth:`see` finds it."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.happenings: list[Happening] = []
        self.fullest: list[list[int]] = []
        """Its block tables when they named most blocks, null blocks (0) in place."""
        self._ids: Sequence[str] = ()
        self._searched = 0
        self._ordinal = -1
        self._preemptions = 0
        self._tables: list[NDArray[np.int64]] = []

    def see(self, machine: Machine, ids: Sequence[str]) -> None:
        """Take note of the step just scheduled, before its outputs are processed."""
        slot = self._slot(machine) if self._is_among(ids) else -1
        if slot < 0 or machine.state.requests[slot, ARRIVAL] > machine.now_ns:
            return
        request = machine.state.requests[slot]
        if request[PREEMPTIONS] > self._preemptions:
            self._preempted(machine, slot, ids)
        if request[STATUS] == RUNNING:
            self._running(machine, slot)
        else:
            self._lasting(machine, "waited", reason=why_waiting(machine, slot, ids))

    def _is_among(self, ids: Sequence[str]) -> bool:
        """Whether the request has been handed over to the engine of these ``ids``; each is compared once."""
        if ids is not self._ids:
            self._ids, self._searched, self._ordinal = ids, 0, -1
        if self._ordinal < 0 and len(ids) > self._searched:
            with suppress(ValueError):
                self._ordinal = ids.index(self.name, self._searched)
            self._searched = len(ids)
        return self._ordinal >= 0

    def _slot(self, machine: Machine) -> int:
        rows = machine.state.requests
        found = np.flatnonzero((rows[:, ORDINAL] == self._ordinal) & (rows[:, STATUS] != FREE_SLOT))
        return int(found[0]) if found.size else -1

    def _add(self, machine: Machine, kind: str, **details: Any) -> None:
        self.happenings.append({"kind": kind, "step": machine.num_steps, "time_s": machine.now_ns / 1e9, **details})

    def _lasting(self, machine: Machine, kind: str, **details: Any) -> None:
        """Go on with the last happening if it is the same one, else begin another."""
        last = self.happenings[-1] if self.happenings else {}
        same = last.get("kind") == kind and all(last[key] == details[key] for key in details if key != "tokens")
        if not same:
            self._add(machine, kind, steps=0, **(details | ({"tokens": 0} if "tokens" in details else {})))
            last = self.happenings[-1]
        last["steps"] += 1
        last["until_step"], last["until_s"] = machine.num_steps, machine.now_ns / 1e9
        if "tokens" in details:
            last["tokens"] += details["tokens"]

    def _preempted(self, machine: Machine, slot: int, ids: Sequence[str]) -> None:
        queues = machine.state.queues
        by = None
        for victim, wanted_by in queues.decided[: queues.counters[NUM_PREEMPTED], [D_PREEMPTED, D_PREEMPTED_FOR]]:
            if victim == slot and wanted_by >= 0:
                by = ids[int(machine.state.requests[wanted_by, ORDINAL])]
        self._preemptions = int(machine.state.requests[slot, PREEMPTIONS])
        self._tables = []
        self._add(machine, "preempted", name=self.name, by=by)

    def _running(self, machine: Machine, slot: int) -> None:
        queues = machine.state.queues
        admitted = queues.decided[: queues.counters[NUM_ADMITTED], D_ADMITTED].tolist()
        if slot in admitted:
            self._admitted(machine, slot)
        tokens = _scheduled(machine, slot)
        if tokens:
            known = int(machine.state.requests[slot, NUM_TOKENS])
            prefill = slot in admitted or not any(h["kind"] == "decoded" for h in self._since_admission())
            if prefill and self._left(known) > 0:
                self._add(machine, "prefilled", tokens=min(tokens, self._left(known)))
            else:
                self._lasting(machine, "decoded", tokens=tokens)
        self._compare_tables(machine, slot)

    def _since_admission(self) -> list[Happening]:
        last = max((i for i, h in enumerate(self.happenings) if h["kind"] == "admitted"), default=0)
        return self.happenings[last:]

    def _left(self, known: int) -> int:
        """Known tokens that were not scheduled yet since the last admission."""
        since = self._since_admission()
        done: int = sum(h["tokens"] for h in since if h["kind"] == "prefilled")
        return known - int(since[0]["hit_tokens"]) - done

    def _admitted(self, machine: Machine, slot: int) -> None:
        seen = machine.state.seen
        rows = seen.lost[: seen.counters[LOST_ROWS]]
        own = rows[rows[:, L_ORDINAL] == self._ordinal]
        details: dict[str, Any] = {"hit_tokens": 0, "seen_tokens": 0, "lost": []}
        if len(own):
            row = own[-1].tolist()
            lost = [[cause, row[L_LOST + i], row[L_GROUP + i]] for i, cause in enumerate(CAUSES) if row[L_LOST + i] > 0]
            details = {"hit_tokens": row[L_HIT], "seen_tokens": row[L_SEEN], "lost": lost}
        self._tables = _tables(machine, slot)
        blocks = [int(np.count_nonzero(table)) for table in self._tables]
        known = int(machine.state.requests[slot, NUM_TOKENS])
        self._add(machine, "admitted", known_tokens=known, **details, blocks=blocks)

    def _compare_tables(self, machine: Machine, slot: int) -> None:
        """Find blocks that were let go since the last step, and keep the fullest tables."""
        tables = _tables(machine, slot)
        freed = []
        for group, (before, now) in enumerate(zip(self._tables, tables, strict=True)):
            gone = (before != 0) & (now[: len(before)] == 0)
            if gone.any():
                freed.append([group, before[gone].tolist()])
        if freed:
            self._add(machine, "freed", blocks=freed)
        self._tables = tables
        if sum(map(np.count_nonzero, tables)) >= sum(np.count_nonzero(table) for table in self.fullest):
            self.fullest = [table.tolist() for table in tables]
        if machine.state.queues.counters[NUM_COPIES]:
            held = {block for table in tables for block in table.tolist()}
            copies = [pair for pair in machine.copies() if pair[1] in held]
            if copies:
                self._add(machine, "copied", blocks=copies)


def _tables(machine: Machine, slot: int) -> list[NDArray[np.int64]]:
    """The request's block tables as they stand, null blocks (0) in place."""
    return [np.array(table, np.int64) for table in machine.block_table(slot)]


def _scheduled(machine: Machine, slot: int) -> int:
    """Tokens the last schedule() gave a request."""
    queues = machine.state.queues
    batch = int(queues.counters[BATCH_HEAD] + queues.counters[NUM_BATCHES] - 1) % queues.batch.shape[0]
    entries = queues.entries[batch, : queues.batch[batch, BATCH_REQUESTS]]
    tokens: int = entries[entries[:, E_SLOT] == slot, E_TOKENS].sum().item()
    return tokens
