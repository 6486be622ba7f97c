"""What the machine gives out: its clock, running totals, and the records that its caller drains."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

(
    NOW,  # ns: the instant of the last schedule or output
    CURRENT_STEP,  # schedule() calls, empty ones included
    STEPS,  # schedule() calls that scheduled something
    MUST_PROCESS,  # 1: the next thing to do is to process the oldest batch
    IDLE_CALLS,  # empty schedule() calls in a row with nothing on the GPU
    LAST_END,  # ns: completion of the newest batch
    QUERY_TOKENS,
    HIT_TOKENS,
    RESUMED_QUERY_TOKENS,
    RESUMED_HIT_TOKENS,
    PREEMPTION_COUNT,
    FINISHED_COUNT,
    TRUNCATED_COUNT,
    PEAK_USED_BLOCKS,
    PEAK_RUNNING,
    PEAK_WAITING,
    OUTPUT_COUNT,
    SCHEDULED_COUNT,
    LAST_FINISH,  # ns
    STEP_ROWS,  # rows of ``steps`` that are filled
    FINISH_ROWS,  # rows of ``finished`` that are filled
    TABLE_LOG_LENGTH,  # entries of ``tables`` that are filled
    NEXT_RESET,  # row of ``resets`` that is due next
    VERIFIED_COUNT,  # outputs that came with drafts to verify
    DRAFT_COUNT,  # drafts verified
    ACCEPTED_COUNT,  # drafts accepted
    DRAFTS_DUE,  # 1: the drafts of the newest batch are to be asked for
    LOAD_ROWS,  # rows of ``loads`` that are filled
) = range(28)
OUTPUT_COUNTERS = 28

(
    S_START,
    S_END,
    S_TOKENS,
    S_PREFILL,
    S_REQUESTS,
    S_RUNNING,
    S_WAITING,
    S_USED,
    S_PREEMPTED,
    S_ADMITTED,
    S_HIT,
    S_STEP,
) = range(12)
STEP_FIELDS = 12
(
    F_ORDINAL,
    F_ARRIVAL,
    F_FIRST_SCHEDULED,
    F_FIRST_TOKEN,
    F_FINISH,
    F_PROMPT,
    F_OUTPUT,
    F_CACHED,
    F_PREEMPTIONS,
    F_PRIORITY,
    F_REASON,
) = range(11)
FINISH_FIELDS = 11
STOP, LENGTH_CAPPED, TRUNCATED = range(3)
L_ORDINAL, L_START, L_END, L_BLOCKS = range(4)
LOAD_FIELDS = 4
R_TIME, R_RUNNING, R_DONE = range(3)
SHARE_LIVE, SHARE_CACHED, SHARE_ROUNDING = range(3)
SHARES = 3


class Output(NamedTuple):
    """Clock, running totals, and records that the caller drains."""

    counters: NDArray[np.int64]  # [28] indexed by the constants above
    steps: NDArray[np.int64]  # [T, STEP_FIELDS]
    finished: NDArray[np.int64]  # [F, FINISH_FIELDS]
    tables: NDArray[np.int64]  # tables of finished requests, when kept: ordinal, length and ids of each group
    shares: NDArray[np.int32]  # [T, G, 3] per step: blocks live and cached in a group, slots of rounding; or empty
    copies: NDArray[np.int32]  # [C, 3] copies of blocks by the last schedule(): group, source, destination
    loads: NDArray[np.int64]  # [rows, 4] prompts whose fetching began: ordinal, from and until when (ns), blocks
    resets: NDArray[np.int64]  # [R, 3] resets of the prefix cache: ns, whether running requests are taken off, done
