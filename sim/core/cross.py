"""Cross attention: the encoder's tokens of a request, stored at its admission, kept until it ends, never shared.

    block 4, encoder 10, prompt 3 and growing:   | 0-3 | 4-7 | 8 9 . . |     three blocks, whatever the decoder does

A step takes in so many encoder tokens at most, and a second limit counts those of batches in flight. A request whose
input does not fit is passed over for this step, and those behind it may go first. vLLM takes an input out of flight
again and again, at every output of its request and at its end, so that the second limit only ever binds early on.

vllm 0.33.0 v1/core/single_type_kv_cache_manager.py:2138 (CrossAttentionManager), v1/core/sched/scheduler.py:2018,
v1/core/encoder_cache_manager.py:387 (EncoderDecoderCacheManager).
"""

from __future__ import annotations

from sim.core._jit import inlined
from sim.core.state import COMPUTED, ENCODER_LEFT, ENCODER_ROOM, ENCODER_TOKENS, Int64s


@inlined
def num_blocks(encoder_tokens: int, block_size: int) -> int:
    """Blocks of the encoder's tokens.

        block 4, encoder 10:   | 0 … 3 | 4 … 7 | 8 9 . . |      -> 3

    >>> num_blocks(10, 4), num_blocks(0, 4)
    (3, 0)
    """
    return -(-encoder_tokens // block_size)


@inlined
def fits_step(request: Int64s, counters: Int64s) -> bool:
    """Whether the encoder can take in the request's input in this step; counters are those of the queues."""
    tokens = request[ENCODER_TOKENS]
    return bool(tokens <= counters[ENCODER_LEFT] and tokens <= counters[ENCODER_ROOM])


@inlined
def take_in(request: Int64s, counters: Int64s) -> None:
    """Count an admitted request's input."""
    counters[ENCODER_LEFT] -= request[ENCODER_TOKENS]
    counters[ENCODER_ROOM] -= request[ENCODER_TOKENS]


@inlined
def give_back(request: Int64s, counters: Int64s) -> None:
    """Take a request's input out of flight: refused for want of blocks, preempted, or ended."""
    counters[ENCODER_ROOM] += request[ENCODER_TOKENS]


@inlined
def note_output(request: Int64s, counters: Int64s) -> None:
    """Take the input out of flight once more: a batch of the request was processed, and it has not been preempted."""
    if request[COMPUTED] > 0:
        counters[ENCODER_ROOM] += request[ENCODER_TOKENS]
