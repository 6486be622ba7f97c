"""Reference sliding window attention: the prompt stays, of the outputs only a window; the gap between them is freed.

    block 4, prompt 6, window 4, processed 17:   | 0-3 | 4-7 |  8-11 | 12-15 | 16 .
                                                   prompt     gap     window: from token 13 on

Look-ups and keys are those of full attention. vllm 0.33.0 v1/core/single_type_kv_cache_manager.py:884 (RSWAManager).
"""

from __future__ import annotations

from sim.core._jit import inlined


@inlined
def gap_start(prompt: int, block_size: int) -> int:
    """The first block that holds outputs only.

    >>> gap_start(6, 4), gap_start(8, 4)
    (2, 2)
    """
    return -(-prompt // block_size)


@inlined
def gap_end(prompt: int, window: int, block_size: int, processed: int) -> int:
    """The block in which the window of outputs begins: those of the gap lie before it.

    >>> gap_end(6, 4, 4, 17), gap_end(6, 4, 4, 9)
    (3, 1)
    """
    return max(prompt, processed - window) // block_size


@inlined
def free_at(window: int, block_size: int, next_of_gap: int) -> int:
    """Processed tokens at which block ``next_of_gap``, the first of the gap still kept, can be freed.

        block 4, window 4:   | 8 … 11 | 12 … 15 | 16      block 2 lies behind the window of token 16

    >>> free_at(4, 4, 2)
    16
    """
    return (next_of_gap + 1) * block_size + window
