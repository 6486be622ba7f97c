"""What is kept of a run: one row per finished request, one per step, and the totals, with units in the names."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from sim.core import output as core

MAX_STEP_ROWS = 1 << 20
"""Above this many steps every second row is dropped, again and again: rows are then those of every 2^k-th step."""

_SECONDS = 1e-9
REASONS = ("stop", "length", "truncated")
"""How a request ended: by its end-of-sequence token, at max_tokens, or at max_model_len."""

_STEP_COLUMNS = {
    "step": core.S_STEP,
    "scheduled_tokens": core.S_TOKENS,
    "prefill_tokens": core.S_PREFILL,
    "scheduled_requests": core.S_REQUESTS,
    "running_requests": core.S_RUNNING,
    "waiting_requests": core.S_WAITING,
    "used_blocks": core.S_USED,
    "preempted_requests": core.S_PREEMPTED,
    "admitted_requests": core.S_ADMITTED,
    "hit_tokens": core.S_HIT,
}
_REQUEST_COLUMNS = {
    "prompt_tokens": core.F_PROMPT,
    "output_tokens": core.F_OUTPUT,
    "cached_tokens": core.F_CACHED,
    "preemptions": core.F_PREEMPTIONS,
    "priority": core.F_PRIORITY,
}


class Records:
    """Rows drained from a machine's buffers, and columns made of them at the end.

    ``used_block_seconds`` and ``running_seconds`` integrate over all steps, thinned or not, for the means.
    """

    def __init__(self) -> None:
        self._steps: list[NDArray[np.int64]] = []
        self._step_rows = 0
        self.stride = 1
        self._finished: list[NDArray[np.int64]] = []
        self.busy_s = 0.0
        self.used_block_seconds = 0.0
        self.running_seconds = 0.0

    def drain(self, output: core.Output) -> None:
        """Take over the filled rows of the machine's buffers and empty them."""
        steps = output.steps[: output.counters[core.STEP_ROWS]]
        self._finished.append(output.finished[: output.counters[core.FINISH_ROWS]].copy())
        if steps.size:
            if output.shares.size:  # behind the fields of a step, so that both are thinned alike
                steps = np.hstack([steps, output.shares[: len(steps)].reshape(len(steps), -1)])
            seconds = (steps[:, core.S_END] - steps[:, core.S_START]) * _SECONDS
            self.busy_s += float(seconds.sum())
            self.used_block_seconds += float(seconds @ steps[:, core.S_USED])
            self.running_seconds += float(seconds @ steps[:, core.S_RUNNING])
            self._keep(steps)
        output.counters[[core.STEP_ROWS, core.FINISH_ROWS]] = 0

    def _keep(self, steps: NDArray[np.int64]) -> None:
        kept = steps[(steps[:, core.S_STEP] - 1) % self.stride == 0].copy()
        self._steps.append(kept)
        self._step_rows += len(kept)
        if self._step_rows > MAX_STEP_ROWS:
            self.stride *= 2
            merged = np.concatenate(self._steps)
            self._steps = [merged[(merged[:, core.S_STEP] - 1) % self.stride == 0].copy()]
            self._step_rows = len(self._steps[0])

    def step_columns(self) -> dict[str, NDArray[Any]]:
        """One row per step, or per ``stride``-th step of a long run; times in seconds."""
        rows = self._step_rows_kept()
        columns: dict[str, NDArray[Any]] = {
            "step": rows[:, core.S_STEP],
            "start_s": rows[:, core.S_START] * _SECONDS,
            "end_s": rows[:, core.S_END] * _SECONDS,
        }
        columns.update({name: rows[:, field] for name, field in _STEP_COLUMNS.items()})
        columns["decode_tokens"] = columns["scheduled_tokens"] - columns["prefill_tokens"]
        return columns

    def _step_rows_kept(self) -> NDArray[np.int64]:
        return np.concatenate(self._steps) if self._steps else np.zeros((0, core.STEP_FIELDS), np.int64)

    def shares(self) -> NDArray[np.int64]:
        """[rows, groups, 3] as the core recorded them, for the rows of :meth:`step_columns`; no groups: it did not."""
        rows = self._step_rows_kept()
        groups = (rows.shape[1] - core.STEP_FIELDS) // core.SHARES
        return rows[:, core.STEP_FIELDS :].reshape(len(rows), groups, core.SHARES)

    def ordinals(self) -> NDArray[np.int64]:
        """The running numbers of the finished requests, in the order of :meth:`request_columns`."""
        return (
            np.sort(np.concatenate([rows[:, core.F_ORDINAL] for rows in self._finished]))
            if self._finished
            else (np.zeros(0, np.int64))
        )

    def request_columns(self, ids: list[str], sessions: list[str | None], first_token_ns: int) -> dict[str, Any]:
        """One row per finished request in order of arrival in the trace; times in seconds.

        ``first_token_ns``: a constant delay outside the engine that is added to the times a client sees
        (``first_token_s``, ``finish_s`` and what follows from them).
        """
        rows = np.concatenate(self._finished) if self._finished else np.zeros((0, core.FINISH_FIELDS), np.int64)
        rows = rows[np.argsort(rows[:, core.F_ORDINAL], kind="stable")]
        ordinals = rows[:, core.F_ORDINAL].tolist()
        arrival = rows[:, core.F_ARRIVAL]
        first = rows[:, core.F_FIRST_TOKEN] + first_token_ns
        finish = rows[:, core.F_FINISH] + first_token_ns
        outputs = rows[:, core.F_OUTPUT]
        with np.errstate(divide="ignore", invalid="ignore"):
            tpot = np.where(outputs > 1, (finish - first) * _SECONDS / (outputs - 1), np.nan)
        columns: dict[str, Any] = {
            "id": [ids[i] for i in ordinals],
            "session": [sessions[i] for i in ordinals],
            "arrival_s": arrival * _SECONDS,
            "first_scheduled_s": rows[:, core.F_FIRST_SCHEDULED] * _SECONDS,
            "first_token_s": first * _SECONDS,
            "finish_s": finish * _SECONDS,
        }
        columns.update({name: rows[:, field] for name, field in _REQUEST_COLUMNS.items()})
        columns["finish_reason"] = [REASONS[i] for i in rows[:, core.F_REASON].tolist()]
        columns["queue_s"] = (rows[:, core.F_FIRST_SCHEDULED] - arrival) * _SECONDS
        columns["ttft_s"] = (first - arrival) * _SECONDS
        columns["tpot_s"] = tpot
        columns["e2e_s"] = (finish - arrival) * _SECONDS
        return columns
