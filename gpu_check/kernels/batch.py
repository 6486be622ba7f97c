"""What one call of paged attention works on: the requests of a step, as arrays on the device."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any


@dataclass(frozen=True, slots=True)
class Batch:
    """The requests of one step, in the order of their query tokens.

    ``query_lens`` new tokens each, which are the last of the ``seq_lens`` tokens that the cache then holds;
    ``block_table`` int32 [requests, blocks] on the device, ``query_start`` int32 [requests + 1] the new tokens added
    up, ``seq_lens_there`` int32 [requests] the same as ``seq_lens``. Whatever is looked up on the host stands here, so
    that a kernel is launched without waiting for the device.
    """

    query_lens: tuple[int, ...]
    seq_lens: tuple[int, ...]
    block_table: Any
    query_start: Any
    seq_lens_there: Any

    @property
    def num_tokens(self) -> int:
        """New tokens of all requests."""
        return sum(self.query_lens)

    @property
    def decode_only(self) -> bool:
        """Whether each request has one new token."""
        return max(self.query_lens) == 1


def make_batch(block_table: Any, seq_lens: Sequence[int], query_lens: Sequence[int]) -> Batch:
    """The batch of these requests; ``block_table`` [requests, blocks] is a tensor of integers on the device.

    Raises ValueError where there is no request, where the arguments do not belong together, and where a request has no
    new token or more of them than tokens.
    """
    import torch

    if not (len(query_lens) == len(seq_lens) == len(block_table) > 0):
        raise ValueError(f"{len(block_table)} tables, {len(seq_lens)} seq_lens, {len(query_lens)} query_lens")
    for new, length in zip(query_lens, seq_lens, strict=True):
        if not 0 < new <= length:
            raise ValueError(f"{new} new tokens of {length}")
    device = block_table.device
    return Batch(
        tuple(query_lens),
        tuple(seq_lens),
        block_table.to(torch.int32),
        torch.tensor([0, *accumulate(query_lens)], dtype=torch.int32, device=device),
        torch.tensor(seq_lens, dtype=torch.int32, device=device),
    )


def padded_table(tables: Sequence[Sequence[int]], device: Any) -> Any:
    """Block tables of different lengths as one int32 array [requests, blocks] on ``device``, padded with zeros."""
    import torch

    width = max(len(table) for table in tables)
    rows = [[*table, *[0] * (width - len(table))] for table in tables]
    return torch.tensor(rows, dtype=torch.int32, device=device)


def first_key(position: int, window: int, chunk: int) -> int:
    """The first key that a query at ``position`` attends to; the last is its own.

        window 4, position 6:   0 1 2 [3 4 5 6]
        chunk 4, position 6:    0 1 2 3 [4 5 6]

    >>> first_key(6, 4, 0), first_key(6, 0, 4), first_key(6, 0, 0), first_key(2, 4, 0)
    (3, 4, 0, 0)
    """
    if chunk:
        return position // chunk * chunk
    return max(0, position - window + 1) if window else 0
