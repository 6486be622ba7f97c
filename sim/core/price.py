"""How long a batch takes: a constant, compute + bytes + fixed cost + cost per request added up, or a measured table.

    t = a * compute + b * bytes + t0 * layers + tr * requests + g * all-reduce bytes

The coefficients reach this file already divided by peaks, as nanoseconds per unit (:mod:`sim.step_time`), so that a
batch is priced with one multiplication per term. A window layer computes and reads min(context, window).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from sim.core._jit import i64, inlined
from sim.core.price_table import Grid, table_ns
from sim.core.state import BATCH_REQUESTS, COMPUTED, E_SLOT, E_TOKENS, Queues

CONSTANT, ADDITIVE, TABLE = range(3)
"""Kinds of a price."""


class Price(NamedTuple):
    """Cost of a batch: ``fixed_ns`` alone, the additive costs in ns per unit, or what ``grid`` holds.

    ``window[W]`` lists the different attention spans of the model (0 = full), with the cost of one query-key pair and
    of reading one cached token over all layers of that span.
    """

    kind: int
    fixed_ns: float  # per batch: constant step time, or t0 * layers + b * weights
    token_ns: float  # per scheduled token: a * matrix products + g * all-reduce
    request_ns: float  # per scheduled request: tr
    expert_ns: float  # per batch when every expert is touched
    experts: float  # experts per layer; 0 = dense
    experts_per_token: float
    window: NDArray[np.int64]  # [W]
    pair_ns: NDArray[np.float64]  # [W]
    read_ns: NDArray[np.float64]  # [W]
    grid: Grid


@inlined
def attended_pairs(start: int, tokens: int, window: int) -> float:
    """Query-key pairs of ``tokens`` new tokens after ``start`` computed ones: each sees min(position, window).

        window 4, start 2, tokens 4:  positions 3 4 5 6 -> 3 + 4 + 4 + 4

    >>> attended_pairs(2, 4, 4), attended_pairs(2, 4, 0)
    (15.0, 18.0)
    """
    end = start + tokens
    if window == 0 or end <= window:
        return tokens * start + 0.5 * tokens * (tokens + 1)
    if start >= window:
        return float(tokens * window)
    grown = window - start
    return grown * start + 0.5 * grown * (grown + 1) + float((tokens - grown) * window)


@inlined
def read_tokens(start: int, tokens: int, window: int) -> int:
    """Cached tokens a chunk reads once: all of them, or the last window of its first token and what follows.

    >>> read_tokens(100, 1, 32), read_tokens(100, 8, 32), read_tokens(100, 8, 0)
    (32, 39, 108)
    """
    if window == 0:
        return start + tokens
    return min(start + tokens, window + tokens - 1)


@inlined
def price_batch(price: Price, requests: NDArray[np.int64], queues: Queues, batch: int, tokens: int) -> int:
    """Duration of a scheduled batch in ns; requests already count the batch's tokens as computed."""
    if price.kind == CONSTANT:
        return i64(price.fixed_ns)
    if price.kind == TABLE:
        return i64(np.round(table_ns(price.grid, requests, queues, batch)))
    size = queues.batch[batch, BATCH_REQUESTS]
    total = price.fixed_ns + price.token_ns * tokens + price.request_ns * size
    if price.experts > 0.0:
        total += price.expert_ns * (1.0 - (1.0 - price.experts_per_token / price.experts) ** tokens)
    for i in range(size):
        new = i64(queues.entries[batch, i, E_TOKENS])
        start = requests[queues.entries[batch, i, E_SLOT], COMPUTED] - new
        if new == 1:  # most entries: one pair per cached token, each read once
            for w in range(price.window.size):
                window = i64(price.window[w])
                seen = start + 1 if window == 0 else min(start + 1, window)
                total += (price.pair_ns[w] + price.read_ns[w]) * seen
            continue
        for w in range(price.window.size):
            total += price.pair_ns[w] * attended_pairs(start, new, i64(price.window[w]))
            total += price.read_ns[w] * read_tokens(start, new, i64(price.window[w]))
    return i64(np.round(total))
