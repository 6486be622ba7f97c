"""The batch being scheduled: requests are put in at its end, and taken out again when they are preempted."""

from __future__ import annotations

from sim.core._jit import i64, inlined
from sim.core.state import (
    BATCH_POSITION,
    BATCH_REQUESTS,
    E_DRAFTS,
    E_SLOT,
    E_TOKENS,
    ENTRY_FIELDS,
    Int64s,
    Queues,
    State,
)


@inlined
def append(requests: Int64s, queues: Queues, batch: int, slot: int, num_tokens: int, drafts: int) -> None:
    """Put a request into the batch being scheduled; ``drafts`` of its tokens are to be verified."""
    position = queues.batch[batch, BATCH_REQUESTS]
    queues.entries[batch, position, E_SLOT] = slot
    queues.entries[batch, position, E_TOKENS] = num_tokens
    queues.entries[batch, position, E_DRAFTS] = drafts
    queues.batch[batch, BATCH_REQUESTS] = position + 1
    requests[slot, BATCH_POSITION] = position


@inlined
def withdraw(state: State, batch: int, slot: int) -> int:
    """Take a preempted request out of the batch it is already in; returns the tokens given back to the budget."""
    queues = state.queues
    position = state.requests[slot, BATCH_POSITION]
    if position < 0:
        return 0
    restored = i64(queues.entries[batch, position, E_TOKENS])
    size = queues.batch[batch, BATCH_REQUESTS] - 1
    for i in range(position, size):
        for field in range(ENTRY_FIELDS):
            queues.entries[batch, i, field] = queues.entries[batch, i + 1, field]
        state.requests[queues.entries[batch, i, E_SLOT], BATCH_POSITION] = i
    queues.batch[batch, BATCH_REQUESTS] = size
    return restored
