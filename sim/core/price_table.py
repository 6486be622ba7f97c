"""Step times from a measured table: linear between its points, and what happens outside of it.

The table is laid out over three axes: requests that decode, the mean of their contexts, and prefill tokens.

    prefill  ^      . measured      below the first point of an axis: as at that point
             |  .   .   .           above the last one: on along the line through the last two
             |  . x .   .           an axis with one point: as at that point
             +-------------> decodes

Steps outside are counted, so that a result can say how many of its times were not between measured ones.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from sim.core._jit import apart, i64, inlined
from sim.core.state import BATCH_REQUESTS, COMPUTED, E_DRAFTS, E_SLOT, E_TOKENS, PROMPT, Queues

INSIDE, OUTSIDE = range(2)


class Grid(NamedTuple):
    """A measured table; each axis rises, and an empty ``ns`` is no table.

    ``context`` is that of the requests that decode; in a step without any, the mean of the tokens that its prefills
    have computed before.
    """

    decodes: NDArray[np.float64]  # [B] requests
    context: NDArray[np.float64]  # [X] tokens
    prefill: NDArray[np.float64]  # [P] tokens
    ns: NDArray[np.float64]  # [B, X, P]
    least_ns: float  # no step takes less
    seen: NDArray[np.int64]  # [2] steps priced inside the table, and outside


@inlined
def cell(axis: NDArray[np.float64], value: float) -> int:
    """Index of the point at the lower end of the cell that ``value`` falls into, the first or last one outside.

    >>> axis = np.array([1.0, 4.0, 16.0])
    >>> [int(cell(axis, value)) for value in (0.5, 1.0, 4.0, 16.0, 99.0)]
    [0, 0, 1, 1, 1]
    """
    return max(0, min(i64(np.searchsorted(axis, value, side="right")) - 1, axis.size - 2))


@inlined
def share(axis: NDArray[np.float64], at: int, value: float) -> float:
    """Where ``value`` lies in its cell: 0 at the lower end, 1 at the upper one, more beyond the last point.

    >>> axis = np.array([1.0, 4.0, 16.0])
    >>> float(share(axis, 0, 2.5)), float(share(axis, 0, 0.5)), float(share(axis, 1, 22.0))
    (0.5, 0.0, 1.5)
    """
    if axis.size == 1 or value <= axis[at]:
        return 0.0
    return float((value - axis[at]) / (axis[at + 1] - axis[at]))


@apart
def looked_up(grid: Grid, decodes: float, context: float, prefill: float) -> float:
    """Nanoseconds of a step, linear along each axis; never less than the shortest measured step."""
    b, x, p = cell(grid.decodes, decodes), cell(grid.context, context), cell(grid.prefill, prefill)
    along_b, along_x = share(grid.decodes, b, decodes), share(grid.context, x, context)
    along_p = share(grid.prefill, p, prefill)
    total = 0.0
    for i in range(2):
        for j in range(2):
            for k in range(2):
                weight = (along_b if i else 1.0 - along_b) * (along_x if j else 1.0 - along_x)
                weight *= along_p if k else 1.0 - along_p
                if weight != 0.0:
                    total += weight * grid.ns[b + i, x + j, p + k]
    return float(max(total, grid.least_ns))


@inlined
def _beyond(axis: NDArray[np.float64], value: float) -> bool:
    return bool(value < axis[0] or value > axis[-1])


@inlined
def table_ns(grid: Grid, requests: NDArray[np.int64], queues: Queues, batch: int) -> float:
    """Duration of a scheduled batch in ns; requests already count the batch's tokens as computed."""
    decodes, context, prefill, prefills, before = 0.0, 0.0, 0.0, 0.0, 0.0
    for i in range(queues.batch[batch, BATCH_REQUESTS]):
        new = i64(queues.entries[batch, i, E_TOKENS])
        request = requests[queues.entries[batch, i, E_SLOT]]
        start = request[COMPUTED] - new
        if new - abs(i64(queues.entries[batch, i, E_DRAFTS])) > 1 or start < request[PROMPT]:
            prefill += new
            prefills += 1.0
            before += start
        else:
            decodes += 1.0
            context += start
    context = context / decodes if decodes > 0.0 else before / prefills
    outside = _beyond(grid.decodes, decodes) or _beyond(grid.context, context) or _beyond(grid.prefill, prefill)
    grid.seen[OUTSIDE if outside else INSIDE] += 1
    return looked_up(grid, decodes, context, prefill)
