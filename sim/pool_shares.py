"""What every byte of the pool is at each step: filled, rounded off, padded, cached or free, per group."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from sim.core.output import SHARE_CACHED, SHARE_LIVE, SHARE_ROUNDING
from sim.planning import KVCachePlan

SHARES = {
    "live": "bytes of live blocks (named by a running request's table, shared ones once) that hold tokens or states",
    "rounding": "bytes of live blocks past their request's last token",
    "padding": "bytes of live and cached blocks that no layer of the group uses",
    "cached": "bytes of free blocks that still have a key, without their padding",
}
"""Columns ``group_0_live_bytes`` … and what each counts; with ``free_bytes`` they make up the pool without its null
block, at every step."""
FREE = "bytes of free blocks without a key"


def share_columns(shares: NDArray[np.int64], plan: KVCachePlan) -> dict[str, NDArray[np.int64]]:
    """``shares`` [rows, groups, 3] of the core as columns of bytes per group, on the fullest pipeline stage.

        block   | content of the group's layers                | padding |
        live    | tokens ……………………… | rounding |

    No columns for a run that did not count them.
    """
    if shares.size == 0:
        return {}
    columns: dict[str, NDArray[np.int64]] = {}
    free = np.full(len(shares), (plan.num_blocks - 1) * plan.block_bytes)
    for group, content in enumerate(plan.content_bytes):
        live, cached = shares[:, group, SHARE_LIVE], shares[:, group, SHARE_CACHED]
        rounding = shares[:, group, SHARE_ROUNDING] * content // plan.group_block_sizes[group]
        columns[f"group_{group}_live_bytes"] = live * content - rounding
        columns[f"group_{group}_rounding_bytes"] = rounding
        columns[f"group_{group}_padding_bytes"] = (live + cached) * (plan.block_bytes - content)
        columns[f"group_{group}_cached_bytes"] = cached * content
        free -= (live + cached) * plan.block_bytes
    return {**columns, "free_bytes": free}


def meaning(column: str) -> str | None:
    """What a column of this module counts; None for any other.

    >>> meaning("group_12_cached_bytes"), meaning("step")
    ('bytes of free blocks that still have a key, without their padding', None)
    """
    if column == "free_bytes":
        return FREE
    parts = column.split("_")
    known = len(parts) == 4 and parts[0] == "group" and parts[3] == "bytes"
    return SHARES.get(parts[2]) if known else None
