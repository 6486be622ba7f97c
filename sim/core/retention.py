"""Which full blocks of a sparse group are worth a key, under ``prefix_cache_retention_interval``.

A later request can only resume where the ``need`` blocks before its resume point are all cached: those that reach over
a window, or the one that holds a state. So a key is given to the tails before

    None (dense)   every multiple of the scheduler block size; of states, every full block
    n              every multiple of n
    0, n           besides: where a resend of the prompt would resume (prompt - 1), and the junction of a prefix found
                   to be shared

vllm 0.33.0 v1/core/single_type_kv_cache_manager.py:1068 and :1552 (reachable_block_mask),
v1/core/kv_cache_coordinator.py:63 (replay_boundaries).
"""

from __future__ import annotations

from sim.core._jit import inlined
from sim.core.state import NEVER


@inlined
def segment_blocks(interval: int, dense: int, block_size: int) -> int:
    """Blocks from one kept tail to the next, ``dense`` tokens without an interval; 0: only boundaries of requests.

        block 16, interval 64:   | . | . | . | x | . | . | . | x |      -> 4

    >>> segment_blocks(-1, 32, 16), segment_blocks(0, 32, 16), segment_blocks(4096, 32, 16)
    (2, 0, 256)
    """
    return (dense if interval < 0 else interval) // block_size


@inlined
def boundary_end(boundary: int, alignment: int, block_size: int) -> int:
    """The block after the last one before a boundary that is rounded down to the alignment.

        block 16, alignment 32, boundary 100:   | 0 | 1 | 2 | 3 | 4 | 5 | 96 . 100      -> 6

    >>> boundary_end(100, 32, 16)
    6
    """
    return boundary // alignment * alignment // block_size


@inlined
def kept_ends(interval: int, prompt: int, junction: int, alignment: int, block_size: int) -> tuple[int, int]:
    """The blocks after the two boundaries of a request that are kept besides an interval's; -1: none such.

    >>> kept_ends(0, 101, 40, 32, 16), kept_ends(-1, 101, 40, 32, 16)
    ((6, 2), (-1, -1))
    """
    if interval < 0:
        return -1, -1
    replay_end = boundary_end(prompt - 1, alignment, block_size)
    return replay_end, boundary_end(junction, alignment, block_size) if junction > 0 else -1


@inlined
def next_in_tail(index: int, need: int, segment: int, replay_end: int, junction_end: int) -> int:
    """The first block from ``index`` on that is one of the ``need`` before the end of a segment, or before a boundary.

        need 2, segments of 4:   . . x x | . . x x | ...     boundary after block 5:   . . . . x x |

    ``segment`` 0: no segments; ends of -1: no such boundary. NEVER: there is none, as behind a window of one token.

    >>> [next_in_tail(i, 2, 4, -1, -1) for i in (0, 3, 4)], next_in_tail(0, 2, 0, 6, -1), next_in_tail(5, 2, 0, 6, -1)
    ([2, 3, 6], 4, 5)
    """
    first = NEVER
    if need == 0:
        return first
    if segment > 0:
        if need >= segment:
            return index
        begin = max(index, 0) // segment * segment
        first = max(index, begin + segment - need)
    if index < replay_end:
        first = min(first, max(index, replay_end - need))
    if index < junction_end:
        first = min(first, max(index, junction_end - need))
    return first


@inlined
def in_tail(index: int, need: int, segment: int, replay_end: int, junction_end: int) -> bool:
    """Whether block ``index`` is one of those.

    >>> [i for i in range(8) if in_tail(i, 2, 4, -1, -1)], [i for i in range(8) if in_tail(i, 2, 0, 6, -1)]
    ([2, 3, 6, 7], [4, 5])
    """
    return next_in_tail(index, need, segment, replay_end, junction_end) == index
