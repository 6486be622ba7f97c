"""Drafts of a request: how many are scheduled with its next token, how many are accepted, and what rejection undoes.

    tokens    | known: n | d1 d2 d3 |          scheduled together, computed counts all of them at once
    output    accepted d1: two tokens, d1 and the one sampled after it; computed goes back by 2

Without async scheduling a request has its drafts once the output before them was processed; with it, K places are kept
for drafts that are still being made. vllm 0.33.0 v1/core/sched/scheduler.py:1009-1025, :1306-1330, :2346-2364 and
v1/core/sched/async_scheduler.py.

Without it, but with pipeline stages, vLLM asks for the drafts of each batch before it processes that batch's output,
and schedules them without the token they follow:

    vLLM      schedule A | wait for A's drafts | schedule B: A's drafts | process A, wait for B's drafts | schedule C
    stages    |===== A =====|                  |===== B =====|                                         |===== C

So only one batch is on the stages at a time (vllm 0.33.0 v1/engine/core.py:699-765 and :1683-1688).
"""

from __future__ import annotations

import numpy as np

from sim.core._jit import i64, inlined
from sim.core.hashing import draw
from sim.core.output import ACCEPTED_COUNT, DRAFT_COUNT, DRAFTS_DUE, NOW, VERIFIED_COUNT
from sim.core.state import (
    BATCH_END,
    BATCH_HEAD,
    BATCH_REQUESTS,
    COMPUTED,
    DRAFTS_USED,
    E_SLOT,
    FINISHED,
    MAX_TOKENS,
    NUM_BATCHES,
    NUM_TOKENS,
    ORDINAL,
    PLACEHOLDERS,
    PREFILLING,
    PROMPT,
    SPEC,
    STATUS,
    Int64s,
    Plan,
    State,
)


@inlined
def take_drafts(request: Int64s, num_new: int) -> int:
    """Drafts among the ``num_new`` tokens a running request is given; the rest of its drafts is dropped.

    known and in flight | draft draft draft
    num_new    |------------------|             -> 2 drafts
    """
    beyond = request[COMPUTED] + num_new - request[NUM_TOKENS] - request[PLACEHOLDERS]
    drafts = max(min(i64(request[SPEC]), i64(beyond)), 0)
    request[SPEC] = 0
    return drafts


@inlined
def may_use_drafts(request: Int64s, num_new: int) -> bool:
    """Whether the drafts made after these ``num_new`` tokens may be verified.

    Not after a part of a prefill, nor when the token sampled next is sure to be the last.
    vllm 0.33.0 v1/core/sched/scheduler.py:502.
    """
    if request[COMPUTED] + num_new < request[NUM_TOKENS]:
        return False
    return bool(request[NUM_TOKENS] - request[PROMPT] + 1 < request[MAX_TOKENS])


@inlined
def ask_for_drafts(plan: Plan, state: State, horizon: int) -> bool:
    """Wait for the newest batch, and give its requests the drafts made after it; none where nobody may use them.

    False, and nothing done, when it is not done before ``horizon`` ns. vllm 0.33.0 v1/core/sched/scheduler.py:2862.
    """
    queues, clock = state.queues, state.output.counters
    batch = (queues.counters[BATCH_HEAD] + queues.counters[NUM_BATCHES] - 1) % plan.max_concurrent_batches
    if queues.batch[batch, BATCH_END] >= horizon:
        return False
    clock[DRAFTS_DUE] = 0
    clock[NOW] = max(clock[NOW], queues.batch[batch, BATCH_END])
    count = plan.num_spec_tokens if queues.counters[DRAFTS_USED] != 0 else 0
    for i in range(queues.batch[batch, BATCH_REQUESTS]):
        request = state.requests[queues.entries[batch, i, E_SLOT]]
        if request[STATUS] != FINISHED:
            request[SPEC] = count if request[PREFILLING] == 0 else 0
    return True


@inlined
def padding(num_spec_tokens: int, num_tokens: int, hit: int, max_model_len: int) -> int:
    """Places for drafts given to a request that enters with one token left, so that it is as wide as those running.

    No draft was made for it, so none is accepted. Near max_model_len it stays narrow.

        hit 10, known 11, three drafts each:   | 0 … 9 hit | 10 | . . . |

    >>> padding(3, 11, 10, 64), padding(3, 12, 10, 64), padding(3, 61, 60, 64)
    (3, 0, 0)
    """
    return num_spec_tokens if num_tokens - hit == 1 and hit + 1 + num_spec_tokens + 1 <= max_model_len else 0


@inlined
def leave_lookahead(num_tokens: int, start: int, num_new: int, lookahead: int) -> int:
    """Tokens of a prefill chunk from ``start`` on that ends the prefill or leaves ``lookahead`` tokens; perhaps 0.

    Several draft modules read that far past a chunk:

        lookahead 3, prompt 10, chunk of 8:   0 … 6 | 7 8 9

    vllm 0.33.0 v1/core/sched/scheduler.py:678.

    >>> leave_lookahead(10, 0, 8, 3), leave_lookahead(10, 0, 10, 3), leave_lookahead(10, 8, 1, 3)
    (7, 10, 0)
    """
    remaining = num_tokens - start - num_new
    if 0 < remaining < lookahead:
        num_new -= lookahead - remaining
    return max(num_new, 0)


@inlined
def num_accepted(acceptance: Int64s, drawn: int, drafts: int) -> int:
    """Drafts accepted of the first ``drafts``: up to the last whose rate the draw is below.

        rates        | 0.8 | 0.6 | 0.3 |      how often the drafts up to here are all accepted: they never rise
        draw 0.5     |  x  |  x  |  .  |      -> 2 accepted

    >>> [num_accepted(np.array([8, 6, 3]), drawn, 3) for drawn in (9, 5, 2)], num_accepted(np.array([8, 6, 3]), 2, 1)
    ([0, 2, 3], 1)
    """
    accepted = 0
    for position in range(drafts):
        accepted += int(drawn < acceptance[position])
    return accepted


@inlined
def verify(acceptance: Int64s, word: np.uint64, totals: Int64s, request: Int64s, drafts: int, stale: bool) -> int:
    """Process the drafts of one output (-n: n places of padding): roll the rejected ones back; returns the accepted.

    One draw decides, which depends on the seed, the request and its outputs so far alone. An output of before a
    preemption counts, but moves nothing: the counters were reset since.
    """
    accepted = 0
    if drafts > 0:
        drawn = draw(word, np.uint64(request[ORDINAL]), np.uint64(request[NUM_TOKENS] - request[PROMPT]))
        accepted = num_accepted(acceptance, i64(drawn), drafts)
    rejected = abs(drafts) - accepted
    if not stale:
        request[COMPUTED] -= rejected
        if request[PLACEHOLDERS] > 0:
            request[PLACEHOLDERS] -= rejected
    totals[VERIFIED_COUNT] += 1
    totals[DRAFT_COUNT] += abs(drafts)
    totals[ACCEPTED_COUNT] += accepted
    return accepted
