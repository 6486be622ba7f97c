"""Gzip as a bounded stream: a few bytes in, at most one piece out, and a limit on how much a file may swell."""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator

from workloads.errors import WorkloadError

GZIP_MAGIC = b"\x1f\x8b"
PIECE = 1 << 20
# Published traces shrink 4 to 30 times; a file may swell this much, or to FREE_BYTES whatever its size.
MAX_RATIO = 200
FREE_BYTES = 64 << 20


def inflate(chunks: Iterable[bytes], where: str) -> Iterator[bytes]:
    """The uncompressed bytes of a gzip file (several members allowed) in pieces of at most 1 MiB.

    Raises `WorkloadError` when the file is cut, damaged, or swells beyond what a trace can.
    """
    inflater = zlib.decompressobj(wbits=31)
    taken = given = 0
    for chunk in chunks:
        taken += len(chunk)
        data = chunk
        while data:
            if inflater.eof:
                data = data.lstrip(b"\0")
                if not data:
                    break
                inflater = zlib.decompressobj(wbits=31)
            piece = step(inflater, data, where)
            data = inflater.unconsumed_tail or inflater.unused_data
            given += len(piece)
            refuse_bomb(taken, given, where)
            if piece:
                yield piece
    while piece := step(inflater, b"", where):
        yield piece
    if not inflater.eof:
        raise WorkloadError("the gzip file is cut: its end is missing; copy or download it again", where=where)


def step(inflater: zlib._Decompress, data: bytes, where: str) -> bytes:
    """One piece of output; raises `WorkloadError` for data that is not gzip."""
    try:
        return b"" if inflater.eof else inflater.decompress(data, PIECE)
    except zlib.error as error:
        detail = str(error).partition(": ")[2] or str(error)
        raise WorkloadError(f"the gzip file is damaged ({detail}); copy or download it again", where=where) from None


def refuse_bomb(taken: int, given: int, where: str) -> None:
    """Raise once ``given`` bytes out of ``taken`` bytes in are more than a trace gives."""
    if given > FREE_BYTES and given > MAX_RATIO * taken:
        raise WorkloadError(
            f"the gzip file swells more than {MAX_RATIO} times ({taken} bytes in, over {given} out); a trace does not: "
            "if it is one, decompress it first",
            where=where,
        )
