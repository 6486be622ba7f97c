"""Block tables as the log tells them, freed by the rules, and what is wrong with them.

The log says which blocks a request gets; when it loses those behind its window is derived here from the masks of
attention (:mod:`gpu_check.rules`), and held against the finished tables and the number of free blocks.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from gpu_check.rules import first_needed
from sim.specs import Spec

NULL = 0


@dataclass(slots=True)
class Held:
    """A request's tables, one per group, null blocks in place, and its tokens computed so far."""

    tables: list[list[int]]
    computed: int


@dataclass(frozen=True, slots=True)
class Chunk:
    """Tokens ``start`` to ``end`` of a request that a step computes; ``hit`` tokens of a prefix just found, else 0."""

    name: str
    start: int
    end: int
    hit: int
    tables: list[list[int]]


@dataclass(slots=True)
class Findings:
    """What was compared, and how often it was wrong."""

    compared: Counter[str] = field(default_factory=Counter)
    wrong: Counter[str] = field(default_factory=Counter)
    first: dict[str, str] = field(default_factory=dict)

    def note(self, what: str, right: bool, where: str) -> None:
        """Count one comparison; the first wrong one is remembered with its place."""
        self.compared[what] += 1
        if not right:
            self.wrong[what] += 1
            self.first.setdefault(what, where)


class HeldBlocks:
    """All requests' tables while a log is replayed."""

    def __init__(self, specs: Sequence[Spec], num_blocks: int, findings: Findings) -> None:
        self._specs = tuple(specs)
        self._requests: dict[str, Held] = {}
        self._references: Counter[int] = Counter()
        self._num_blocks = num_blocks
        self._findings = findings

    def step(self, entry: dict[str, Any]) -> list[Chunk]:
        """Apply one step of the log; the chunks it computes, in its order."""
        hits = dict(entry["hits"])
        new = dict(entry["new_blocks"])
        where = f"step {entry['step']}"
        for name in [*entry["preempted"], *(name for name in hits if name in self._requests)]:
            self._release(name)
        for (name, _), processed in zip(entry["scheduled"], entry["processed"], strict=True):
            if name not in hits:
                self._free_skipped(self._requests[name], processed)
        for name, hit in hits.items():
            self._requests[name] = Held([[] for _ in self._specs], hit)
        for name, _ in entry["scheduled"]:
            self._take(name, new.get(name, []), hits.get(name, 0), where)
        free = self._num_blocks - 1 - len(+self._references)
        self._findings.note("free blocks", free == entry["free_blocks"], f"{where}: {free} by the rules")
        return [self._chunk(name, count, hits.get(name, 0)) for name, count in entry["scheduled"]]

    def finish(self, entry: dict[str, Any]) -> None:
        """Compare the tables of a request that ended with those in the log, then let go of its blocks."""
        name = entry["finished"]
        held = self._requests[name]
        self._findings.note("finished tables", held.tables == entry["tables"], f"request {name}")
        self._release(name)

    def _take(self, name: str, new: Sequence[Sequence[int]], hit: int, where: str) -> None:
        """Append a request's new entries; those of its hit may be held by others, the rest by nobody."""
        held = self._requests[name]
        for table, blocks, spec in zip(held.tables, new, self._specs, strict=bool(new)):
            shared = hit_entries(hit, spec) if not table else 0
            for position, block in enumerate(blocks):
                table.append(block)
                if block == NULL:
                    continue
                if position >= shared:
                    self._findings.note("fresh blocks", self._references[block] == 0, f"{where}: block {block}")
                self._references[block] += 1

    def _free_skipped(self, held: Held, processed: int) -> None:
        for table, spec in zip(held.tables, self._specs, strict=True):
            for index in range(min(first_needed(spec, processed) // spec.block_size, len(table)) - 1, -1, -1):
                if table[index] == NULL:
                    break
                self._let_go(table[index])
                table[index] = NULL
                self._findings.compared["blocks freed behind a window or state"] += 1

    def _release(self, name: str) -> None:
        for table in self._requests.pop(name).tables:
            for block in table:
                self._let_go(block)

    def _let_go(self, block: int) -> None:
        if block != NULL:
            self._references[block] -= 1

    def _chunk(self, name: str, count: int, hit: int) -> Chunk:
        held = self._requests[name]
        start = held.computed
        held.computed += count
        return Chunk(name, start, start + count, hit, held.tables)


def hit_entries(hit: int, spec: Spec) -> int:
    """The entries of a fresh table that a hit of ``hit`` tokens fills with blocks that were there before.

    A block in which the hit ends was copied, so that it is the request's own.

        blocks of 4, hit of 10:   | 0 ... 3 | 4 ... 7 | 8 9 . . |    entries 0 and 1; 2 is a copy

    >>> from sim.specs import FullAttentionSpec
    >>> hit_entries(10, FullAttentionSpec(4, 1, 8, "float32"))
    2
    """
    return hit // spec.block_size if spec.prefix_cacheable else 0
