"""The most that any eviction policy could have hit in a run: Belady's bound, and that of an endless cache.

Both look at what the run itself admitted, in its order: the same requests at the same moments, with another cache. Text
is cut into units of one block of the group that keeps every token. A request that is admitted looks its units up, and
holds them until it has finished; a unit it finds was in the pool all the time since somebody last put it there::

    request p   admitted |-- prefill --|-- decode --| finished
    the unit                           *------------------------------*     one place of the pool, from when p had
    request r                                                admitted |     computed it to when r finds it

Each unit found takes such an interval, of one place; the pool has so many places; what is found at most is the largest
set of intervals of which never more overlap than there are places. Taking away the interval that ends last whenever
there are too many gives it: Belady's rule, evict what is needed farthest in the future (L. A. Belady, A study of
replacement algorithms for a virtual-storage computer, IBM Systems Journal 5 (2), 1966).

It is a bound because all that is left out would only allow less: blocks of running requests, of windows and of states
take no place; a unit may be found though those before it are not there; one that is computed at the moment it is looked
up is found for nothing; nothing need be kept that is not worth it. With no group that keeps every token it is the
endless cache's. Cost: a sort of all units looked at; the rule itself goes over requests, not units.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from heapq import heappop, heappush
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sim.planning import KVCachePlan
from workloads.batch import RequestBatch, ranges
from workloads.content import SESSION, named_pair
from workloads.stats.prefixes import paths

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
_KEEP_EVERY_TOKEN = ("full_attention", "sink_full_attention", "mla_attention")


class Ceilings(NamedTuple):
    """Prompt tokens hit at most by any policy in the same pool, and by a cache that keeps everything."""

    belady_tokens: int
    endless_tokens: int


class Units(NamedTuple):
    """Every unit a request looks up or leaves behind: whose, its name, if it is looked up, from when on it is there."""

    owner: Ints
    name: NDArray[np.uint64]
    looked_up: NDArray[np.bool_]
    there_s: Floats


def ceilings(plan: KVCachePlan, requests: Mapping[str, Any], batch: RequestBatch) -> Ceilings:
    """The bounds for a run of this plan and these rows of requests, whose texts are in ``batch``; replicas added up."""
    rows = _rows_of(requests["id"], batch)
    replica = np.asarray(requests.get("replica", np.zeros(len(rows), np.int64)))
    found = [_of_one(plan, requests, batch, rows, np.flatnonzero(replica == each)) for each in np.unique(replica)]
    return Ceilings(sum(each.belady_tokens for each in found), sum(each.endless_tokens for each in found))


def _rows_of(ids: list[str], batch: RequestBatch) -> Ints:
    """The row of each id in the batch; of equal ids, one after another."""
    places: dict[str, list[int]] = defaultdict(list)
    for row in range(len(batch) - 1, -1, -1):
        places[batch.ids[row]].append(row)
    return np.array([places[name].pop() for name in ids], np.int64)


def _of_one(plan: KVCachePlan, requests: Mapping[str, Any], batch: RequestBatch, rows: Ints, mine: Ints) -> Ceilings:
    """The bounds of one replica, whose requests are the rows ``mine``."""
    admitted_s = np.asarray(requests["first_scheduled_s"])[mine]
    unit, places = unit_and_places(plan)
    units = _units({name: np.asarray(requests[name])[mine] for name in _COLUMNS}, batch.take(rows[mine]), unit)
    since, until = intervals(units, admitted_s)
    waits = since < until
    (begin, end), weight = np.unique(np.stack([since[waits], until[waits]]), axis=1, return_counts=True)
    kept = most_kept(begin, end, weight, places)
    return Ceilings((int((~waits).sum()) + kept) * unit, len(since) * unit)


_COLUMNS = ("first_token_s", "finish_s", "prompt_tokens", "output_tokens", "preemptions")


def unit_and_places(plan: KVCachePlan) -> tuple[int, int]:
    """Tokens of a unit, and how many of them the pool holds where nothing else is in it."""
    sizes = [
        size for group, size in zip(plan.groups, plan.group_block_sizes, strict=True) if group.kind in _KEEP_EVERY_TOKEN
    ]
    if not sizes:
        return plan.hash_block_size, 1 << 62
    unit = plan.cache_hit_alignment_tokens if plan.enable_partial_hash_hits else min(sizes)
    return unit, int((plan.num_blocks - 1) / sum(unit / size for size in sizes) + 1e-9)


def _units(requests: Mapping[str, Any], batch: RequestBatch, unit: int) -> Units:
    """The units of requests; the last token of a prompt is computed in any case."""
    spans = paths(batch)
    total = (requests["prompt_tokens"] + requests["output_tokens"])[spans.owner]
    stop = np.minimum(spans.start + spans.tokens, total)
    first = spans.start // unit + 1
    counts = np.maximum(stop // unit - first + 1, 0)
    at = np.repeat(np.arange(len(counts)), counts)
    end = ranges(first, counts) * unit
    owner = spans.owner[at]
    prompt = requests["prompt_tokens"][owner]
    settled_s = np.where(requests["preemptions"] > 0, requests["finish_s"], requests["first_token_s"])
    return Units(
        owner=owner,
        name=named_pair(spans.node[at], end - spans.start[at], SESSION),
        looked_up=(end < prompt) & ~batch.skip_cache[owner],
        there_s=np.where(end <= prompt, settled_s[owner], requests["finish_s"][owner]),
    )


def intervals(units: Units, admitted_s: Floats) -> tuple[Floats, Floats]:
    """For each unit that is looked up and was there before: from when on it has to be kept, and when it is found.

    From when all who were admitted before had it computed: it cannot have come in again after that. Of those admitted
    in one step, who looks nothing up goes first.
    """
    order = np.lexsort((units.looked_up, admitted_s[units.owner], units.name))
    name, looked_up = units.name[order], units.looked_up[order]
    moments, rank = np.unique(units.there_s[order], return_inverse=True)
    text = np.concatenate(([0], np.cumsum(name[1:] != name[:-1]))) if name.size else np.zeros(0, np.int64)
    latest = np.maximum.accumulate(text * len(moments) + rank)
    found = np.flatnonzero(looked_up[1:] & (text[1:] == text[:-1])) + 1
    since = moments[latest[found - 1] - text[found] * len(moments)]
    return since, admitted_s[units.owner[order[found]]]


def most_kept(begin: Floats, end: Floats, weight: Ints, places: int) -> int:
    """How many of these intervals can be kept so that never more than ``places`` overlap; each counts ``weight`` times.

        places 1     |-----------------|       dropped: it ends last
                        |----|                 kept
                             |--------|        kept: it begins where the other ends

    >>> most_kept(np.array([0.0, 1.0, 2.0]), np.array([4.0, 2.0, 3.0]), np.array([1, 1, 1]), 1)
    2
    """
    kept = weight.tolist()
    soonest: list[tuple[float, int]] = []
    farthest: list[tuple[float, int]] = []
    ends, held = end.tolist(), 0
    for i in np.argsort(begin, kind="stable").tolist():
        while soonest and soonest[0][0] <= begin[i]:
            held -= kept[heappop(soonest)[1]]
        heappush(soonest, (ends[i], i))
        heappush(farthest, (-ends[i], i))
        held += kept[i]
        while held > places:
            last = farthest[0][1]
            dropped = min(kept[last], held - places)
            kept[last] -= dropped
            held -= dropped
            if kept[last] == 0:
                heappop(farthest)
    return sum(kept)
