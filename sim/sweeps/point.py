"""One point of a sweep: a scenario run, or searched for its limit, and what is kept of it as one flat row."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np

from sim.belady import ceilings
from sim.engine import WINDOW
from sim.errors import InputError, RefusalError, StallError
from sim.load import SHORT, load_of
from sim.measure import Measure
from sim.run import Result, run_scenario
from sim.scenario import Document, Scenario, build_scenario
from sim.scenario.checking import located
from sim.scenario.overrides import Override, apply, split_key
from sim.search import KNOBS, REFUSED, Probe, Target, find_limit
from workloads import WorkloadError, open_workload
from workloads.batch import concat
from workloads.clients import KEYS as CLIENT_KEYS
from workloads.kept import KeptWorkload

CURVE = (0.25, 0.5, 0.75, 0.9, 1.1, 1.25, 1.5)
"""Loads run besides those of the search, as shares of the limit, so that the knee can be drawn."""
MOST_LENGTHENED = 16
"""Times as many requests as the scenario has, at most, for a run of a search that is too short to tell."""
CEILINGS = ("belady_hit_rate", "endless_hit_rate")
"""Columns of :mod:`sim.belady`, worked out where a sweep names one of them."""
LEFT_OUT = frozenset({"workload", "replicas", "lost_hits", "name"})
"""Parts of a summary that are no numbers of the run."""


@dataclass(frozen=True, slots=True)
class Search:
    """What to look for: the limit over one knob at which all targets are met, for so many seeds."""

    targets: tuple[Target, ...]
    over: str
    seeds: int
    curve: bool = False


@dataclass(frozen=True, slots=True)
class Point:
    """One scenario of a sweep: ``changes`` by dotted key are already made in ``document``.

    ``ceilings``: what other caches could have hit is wanted beside what was hit.
    """

    index: int
    changes: Mapping[str, Any]
    document: Document
    base_dir: Path
    search: Search | None = None
    ceilings: bool = False

    @property
    def key(self) -> str:
        """The same for the same inputs, whatever the sweep around: scenario, search, trace file, version."""
        try:
            release = version("hybridkv")
        except PackageNotFoundError:
            release = "not installed"
        search = None if self.search is None else asdict(self.search)
        said = [release, self.document.value, self._trace(), search, self.ceilings]
        return hashlib.sha256(json.dumps(said, sort_keys=True, default=str).encode()).hexdigest()[:24]

    def _trace(self) -> list[Any]:
        """Size and time of the last change of the trace file, if there is one."""
        workload = self.document.value.get("workload")
        trace = workload.get("trace") if isinstance(workload, Mapping) else None
        try:
            found = (self.base_dir / str(trace)).stat()
        except (OSError, ValueError):
            return []
        return [found.st_size, found.st_mtime_ns]


Row = dict[str, Any]
"""``error`` (None: it ran), ``values`` by dotted name; of a search the ``limits`` by seed and all ``probes``."""


def run_point(point: Point) -> Row:
    """Run a point. What is wrong with it becomes its row's ``error``: the other points are run all the same."""
    try:
        scenario = build_scenario(point.document, point.base_dir)
        with located(scenario.document):
            if point.search is not None:
                return {"error": None, **_searched(scenario, point.search)}
            scenario, result = _run(scenario)
            bounds = _ceilings(scenario, result) if point.ceilings else {}
            return {"error": None, "values": _values(scenario, result) | bounds}
    except (InputError, RefusalError, StallError, WorkloadError) as error:
        return {"error": str(error), "values": {}}


def _run(scenario: Scenario) -> tuple[Scenario, Result]:
    scenario.require_workload()
    return scenario, run_scenario(scenario, workload=_workload_of(scenario))


def _workload_of(scenario: Scenario) -> KeptWorkload:
    config = {key: value for key, value in scenario.workload.items() if key not in CLIENT_KEYS}
    return _workload(json.dumps(config, sort_keys=True), scenario.base_dir, scenario.seed)


@lru_cache(maxsize=2)
def _workload(config: str, base_dir: Path, seed: int) -> KeptWorkload:
    """A workload whose requests stay in memory, so that the points of one worker that share it read it once."""
    return KeptWorkload(open_workload(json.loads(config), base_dir, seed))


def _ceilings(scenario: Scenario, result: Result) -> Row:
    """The hit rates that no eviction policy, and no cache at all, could have exceeded in this run."""
    bounds = ceilings(result.plan, result.requests, concat(list(_workload_of(scenario).batches(WINDOW))))
    queries = result.summary["prefix_cache_queries_tokens"]
    return {name: tokens / queries if queries else None for name, tokens in zip(CEILINGS, bounds, strict=True)}


def _values(scenario: Scenario, result: Result) -> Row:
    """The numbers of a summary by dotted name, and how the run kept up with its load."""
    summary = {key: value for key, value in result.summary.items() if key not in LEFT_OUT}
    load = load_of(result.requests, scenario.measure, _step_s(result))
    return {**_flat(summary), **{f"load.{key}": value for key, value in load.items()}}


def _step_s(result: Result) -> float:
    return float(result.summary["busy_s"]) / max(int(result.summary["steps"]), 1)


def _flat(value: Mapping[str, Any], path: str = "") -> Row:
    """Nested mappings as one, keys joined by dots; lists are left out.

    >>> _flat({"a": 1, "b": {"c": 2.5, "d": [1]}})
    {'a': 1, 'b.c': 2.5}
    """
    found: Row = {}
    for key, inner in value.items():
        if isinstance(inner, Mapping):
            found |= _flat(inner, f"{path}{key}.")
        elif isinstance(inner, int | float | str | None):
            found[path + key] = inner
    return found


def _searched(scenario: Scenario, search: Search) -> Row:
    """The limit for each seed, in one row: the mean over seeds, the lowest and the highest, and every probe.

    ``limit.verdict`` is how the run at the limit kept up: too short to tell if that of any seed is.
    """
    limits: list[float | None] = []
    probes: list[Row] = []
    for seed in range(search.seeds):
        limit, found = _search_once(
            _changed(scenario, {"seed": scenario.seed + seed}), search, search.curve and seed == 0
        )
        limits.append(limit)
        probes += [{"seed": scenario.seed + seed, **asdict(probe)} for probe in found]
    known = [limit for limit in limits if limit is not None]
    told = [
        probe["verdict"]
        for seed, limit in enumerate(limits)
        for probe in probes
        if (probe["seed"], probe["value"]) == (scenario.seed + seed, limit)
    ]
    values: Row = {
        "limit": float(np.mean(known)) if len(known) == len(limits) else None,
        "limit.lowest": min(known) if len(known) == len(limits) else None,
        "limit.highest": max(known) if known else None,
        "limit.verdict": SHORT if SHORT in told else told[0] if told else None,
        "latency_class": next((said for probe in probes if (said := probe["latency_class"])), None),
    }
    return {"values": values, "limits": limits, "probes": probes}


def _search_once(scenario: Scenario, search: Search, curve: bool) -> tuple[float | None, list[Probe]]:
    knob = KNOBS[search.over]
    start = knob.start(scenario)

    def probe(value: float) -> Probe:
        try:
            return _probe_told(_changed(scenario, knob.set(scenario, start, value)), value, search.targets)
        except (RefusalError, StallError) as error:
            if knob.most:  # no load is small enough for an engine that does not start
                raise
            return Probe(value, (None,) * len(search.targets), False, REFUSED, note=str(error))

    limit, probes = find_limit(probe, start, most=knob.most, whole=knob.whole)
    if curve and limit is not None:
        wanted = [limit * share for share in CURVE]
        if knob.whole:
            wanted = [float(round(value)) for value in wanted if round(value) >= 1]
        probes += [probe(value) for value in dict.fromkeys(wanted) if value not in {p.value for p in probes}]
    return limit, probes


def _probe_told(scenario: Scenario, value: float, targets: tuple[Target, ...]) -> Probe:
    """The probe of a load. A run that meets the targets and is too short to tell whether it keeps up is made longer.

    Only generated requests can be made more; a trace has those it has.
    """
    found = _probe(*_run(scenario), value, targets)
    times = 1
    while found.met and found.verdict == SHORT and times < MOST_LENGTHENED and "synthetic" in scenario.workload:
        times *= 2
        requests = int(scenario.workload["synthetic"]["requests"]) * times
        longer = _changed(scenario, {"workload.synthetic.requests": requests})
        found = replace(_probe(*_run(longer), value, targets), lengthened=times)
    return found


def _probe(scenario: Scenario, result: Result, value: float, targets: tuple[Target, ...]) -> Probe:
    numbers = tuple(target.value(result.requests, result.summary, scenario.measure) for target in targets)
    met = all(target.met(number) for target, number in zip(targets, numbers, strict=True))
    verdict = load_of(result.requests, scenario.measure, _step_s(result))["verdict"]
    tenths = _tenths(result.requests, scenario.measure, targets)
    return Probe(value, numbers, met, verdict, tenths, latency_class=str(result.summary["latency_class"]))


def _tenths(requests: Mapping[str, Any], measure: Measure, targets: tuple[Target, ...]) -> int:
    """In how many tenths of the measured requests, by order of arrival, the targets on latencies are met."""
    latencies = [target for target in targets if target.statistic is not None]
    sent = np.asarray(requests["arrival_s"])
    measured = np.flatnonzero(measure.of(sent).holds(sent))
    order = measured[np.argsort(sent[measured], kind="stable")]
    columns = {name: np.asarray(requests[name]) for name in ("arrival_s", *(target.metric for target in latencies))}
    parts = [{name: values[rows] for name, values in columns.items()} for rows in np.array_split(order, 10)]
    return sum(all(target.met(target.value(part, {}, Measure())) for target in latencies) for part in parts)


def _changed(scenario: Scenario, changes: Mapping[str, Any]) -> Scenario:
    place = "the search"
    overrides = [Override(split_key(key, place), value, f"--over: {key}") for key, value in changes.items()]
    return build_scenario(apply(scenario.document, overrides), scenario.base_dir)
