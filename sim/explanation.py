"""Why prompt tokens were not hit, summed over a run: the rows of :mod:`sim.core.lost_hits` as totals and columns."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from sim.core.seen import (
    L_ADMITTED,
    L_GROUP,
    L_HIT,
    L_LOST,
    L_ORDINAL,
    L_RESUMED,
    L_SEEN,
    L_TOKENS,
    LOST_FIELDS,
    LOST_ROWS,
    NUM_CAUSES,
    Seen,
)

CAUSES = {
    "eagle_drop": "eagle drop",
    "window_gap": "window gap",
    "reset": "reset",
    "evicted": "evicted",
    "never_kept": "never kept: retention",
    "not_final": "never kept: draft modules",
    "no_state": "state not at a boundary",
    "alignment": "alignment",
    "replay": "bounded replay",
}
"""Names for columns and for people, in the order of the core's numbers; :mod:`sim.core.lost_hits` defines them."""


class Explanation:
    """Totals over all admissions, and the first admission of each request; empty in a run that is not explained.

    ``by_group[i, c, g]`` are tokens lost to cause c in group g, the last g standing for all groups alike; i is 0 for
    first admissions, 1 for those after a preemption. ``hash_lookahead``: last tokens of a text that no key is for.
    """

    def __init__(self, num_groups: int, hash_lookahead: int = 0) -> None:
        self._last_tokens = max(hash_lookahead, 1)
        self.by_group = np.zeros((2, NUM_CAUSES, num_groups + 1), np.int64)
        self._totals = np.zeros((2, 5), np.int64)
        self._rows: list[NDArray[np.int32]] = []

    def drain(self, seen: Seen) -> None:
        """Take over the filled rows of the machine's buffer and empty it."""
        count = int(seen.counters[LOST_ROWS])
        if count == 0:
            return
        rows = seen.lost[:count]
        seen.counters[LOST_ROWS] = 0
        wide = rows.astype(np.int64)
        resumed = wide[:, L_RESUMED]
        one = np.ones(count, np.int64)
        last = np.minimum(wide[:, L_TOKENS], self._last_tokens)
        for part in (0, 1):
            of_part = wide[resumed == part]
            self._totals[part, :4] += of_part[:, [L_TOKENS, L_HIT, L_SEEN, L_ADMITTED]].sum(0)
            self._totals[part, 4] += last[resumed == part].sum()
        for cause in range(NUM_CAUSES):
            np.add.at(self.by_group, (resumed, cause * one, wide[:, L_GROUP + cause]), wide[:, L_LOST + cause])
        self._rows.append(rows[rows[:, L_RESUMED] == 0].copy())

    def summary(self) -> dict[str, Any] | None:
        """What became of the tokens that were looked up, ready for JSON; None when nothing was explained."""
        if not self._rows:
            return None
        return {"prompts": self._part(0), "resumed": self._part(1)}

    def _part(self, part: int) -> dict[str, Any]:
        tokens, hit, seen, admitted, last_tokens = self._totals[part].tolist()
        lost = self.by_group[part]
        return {
            "tokens": tokens,
            "hit": hit,
            "lost": dict(zip(CAUSES, lost.sum(1).tolist(), strict=True)),
            "being_computed": admitted - seen,
            "never_seen": tokens - last_tokens - admitted,
            "last_tokens": last_tokens,
            "lost_by_group": [dict(zip(CAUSES, group, strict=True)) for group in lost[:, :-1].T.tolist()],
        }

    def request_columns(self, ordinals: NDArray[np.int64]) -> dict[str, NDArray[Any]]:
        """Per request, at its first admission: the prefix that was seen, and tokens lost and the group of each cause.

        Requests that looked nothing up have zeros; a group of -1 means none, or all alike.
        """
        if not self._rows:
            return {}
        rows = np.concatenate(self._rows)
        table = np.zeros(
            (int(max(ordinals.max(initial=0), rows[:, L_ORDINAL].max(initial=0))) + 1, LOST_FIELDS), np.int32
        )
        table[:, L_GROUP:] = -1
        table[rows[:, L_ORDINAL]] = rows
        found = table[ordinals]
        columns = {"seen_tokens": found[:, L_SEEN]}
        for cause, name in enumerate(CAUSES):
            columns[f"lost_{name}_tokens"] = found[:, L_LOST + cause]
            columns[f"lost_{name}_group"] = found[:, L_GROUP + cause]
        return columns
