"""Which tokens of a request the next one still needs: written from the masks of attention, not from the simulator."""

from __future__ import annotations

from sim.specs import ChunkedLocalAttentionSpec, MambaSpec, SlidingWindowSpec, Spec


def first_needed(spec: Spec, computed: int) -> int:
    """The first of ``computed`` tokens that token number ``computed`` reads; ``computed`` where it reads none of them.

        window 4, 7 computed:   0 1 2 3 [4 5 6] 7        chunk 4, 7 computed:   0 1 2 3 [4 5 6] 7
        a state, 7 computed:    0 1 2 3 4 5 [6] 7        chunk 4, 8 computed:   0 1 2 3 4 5 6 7 [] 8

    >>> first_needed(SlidingWindowSpec(2, 1, 8, "float32", sliding_window=4), 7)
    4
    >>> chunks = ChunkedLocalAttentionSpec(2, 1, 8, "float32", attention_chunk_size=4)
    >>> first_needed(chunks, 7), first_needed(chunks, 8)
    (4, 8)
    """
    if isinstance(spec, MambaSpec):
        return max(0, computed - 1)
    if isinstance(spec, ChunkedLocalAttentionSpec):
        return computed - computed % spec.attention_chunk_size
    if isinstance(spec, SlidingWindowSpec):
        return max(0, computed + 1 - spec.sliding_window - spec.extra_retained_tokens)
    return 0
