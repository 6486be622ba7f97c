"""Which of the scenario's own steps are run: the same number of each class, evenly spread over the run."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from gpu_check.throughput.composition import CLASSES, Composition, Tables, evenly

Entry = dict[str, Any]


def sampled_steps(
    log: Sequence[Entry], per_class: int, fits: Callable[[Composition], bool] = lambda _: True
) -> tuple[list[Composition], dict[str, int]]:
    """At most ``per_class`` steps of each class with their block tables, in order, and how many steps each class has.

    ``log`` is the step log (:mod:`sim.step_log`); steps that do not ``fit`` (which is asked without tables) are
    counted and not taken.
    """
    places: dict[str, list[int]] = {name: [] for name in CLASSES}
    counts = dict.fromkeys(CLASSES, 0)
    for step in compositions(log):
        counts[step.kind] += 1
        if fits(step):
            places[step.kind].append(step.step)
    wanted = {step for steps in places.values() for step in evenly(steps, per_class)}
    return [step for step in compositions(log, wanted) if step.step in wanted], counts


def compositions(log: Sequence[Entry], with_tables: frozenset[int] | set[int] = frozenset()) -> Iterator[Composition]:
    """The composition of every step of a log; block tables only for the steps named.

    What a request has computed and holds follows from the entries: an admission sets both, a preemption ends both.
    """
    computed: dict[str, int] = {}
    tables: dict[str, list[list[int]]] = {}
    for entry in log:
        if "finished" in entry:
            computed.pop(entry["finished"], None)
            tables.pop(entry["finished"], None)
            continue
        for name in entry["preempted"]:
            tables.pop(name, None)
        for name, cached in entry["hits"]:
            computed[name] = cached
            tables.pop(name, None)
        for name, new in entry["new_blocks"]:
            held = tables.setdefault(name, [[] for _ in new])
            for table, blocks in zip(held, new, strict=True):
                table.extend(blocks)
        scheduled = entry["scheduled"]
        starts = tuple(computed[name] for name, _ in scheduled)
        shown = _shown(tables, scheduled) if entry["step"] in with_tables else None
        yield Composition(starts, tuple(new for _, new in scheduled), shown, entry["step"])
        for name, new in scheduled:
            computed[name] += new


def _shown(tables: dict[str, list[list[int]]], scheduled: Sequence[tuple[str, int]]) -> tuple[Tables, ...]:
    """The tables of the scheduled requests as they are now, by group."""
    groups = len(tables[scheduled[0][0]])
    return tuple(tuple(tuple(tables[name][group]) for name, _ in scheduled) for group in range(groups))
