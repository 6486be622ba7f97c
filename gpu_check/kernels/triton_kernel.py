"""Paged attention in Triton: tiles of queries against splits of the keys, read through block tables, then reduced.

One program takes a tile of a request's queries, all query heads of one KV head at once (so that each key is loaded once
and multiplied as a matrix), and one split of the keys that any query of the tile sees::

    keys of the request   0 . . . . . . . . . . . . . . . . seq_len
    window of the tile                |begin           end|
    splits                            |  0  |  1  |  2  |

Blocks before ``begin`` are neither looked up nor read. Splits (flash-decoding) keep a GPU busy when there are few
queries; each leaves a maximum, a sum and an unscaled output, and :func:`reduce_splits` adds them up.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import triton
import triton.language as tl

if TYPE_CHECKING:

    def kernel(function: object) -> Any:
        """``triton.jit``, typed."""

else:
    kernel = triton.jit


@kernel
def attend(
    query,
    k_cache,
    v_cache,
    block_table,
    tiles,
    query_start,
    seq_lens,
    out,
    parts,
    stats,
    table_row,
    scale_log2,
    q_layout: tl.constexpr,
    k_layout: tl.constexpr,
    v_layout: tl.constexpr,
    out_layout: tl.constexpr,
    heads: tl.constexpr,
    span: tl.constexpr,
    block_size: tl.constexpr,
    num_rows: tl.constexpr,
    num_keys: tl.constexpr,
    num_splits: tl.constexpr,
    precision: tl.constexpr,
):
    """Attention of one tile of queries over one split of its keys.

    ``q_layout`` and ``out_layout`` are the strides of a token and of a head, ``k_layout`` and ``v_layout`` those of a
    block, a slot and a head, then the head's size and that rounded up to a power of two; ``heads`` the query heads of
    all and of one KV head; ``span`` window and chunk (0: none). ``num_keys`` keys are taken at a time. ``scale_log2``
    is the softmax scale times log2(e). With one split the result goes to ``out``; with more, for which tiles must be
    of one token, to ``parts`` and ``stats``.
    """
    tile, kv_head, split = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    request, first, start, query_len, seq_len = _tile(tiles, query_start, seq_lens, tile)
    rows = tl.arange(0, num_rows)
    token, head = first + rows // heads[1], kv_head * heads[1] + rows % heads[1]
    live = (rows < (num_rows // heads[1]) * heads[1]) & (token < query_len)
    index = (start + token).to(tl.int64)
    q = _load_queries(query, index, head, live, q_layout, k_layout)
    position = seq_len - query_len + token
    begin, end = _keys_of_tile(seq_len - query_len + first, seq_len, num_rows // heads[1], span)
    low, high = _split(begin, end, split, num_keys, num_splits)
    highest, total = tl.full([num_rows], float("-inf"), tl.float32), tl.full([num_rows], 0.0, tl.float32)
    acc = tl.full([num_rows, v_layout[4]], 0.0, tl.float32)
    table = block_table + request.to(tl.int64) * table_row
    key = low + tl.arange(0, num_keys)  # block ids are loaded a step ahead, or keys could not be
    block = tl.load(table + key // block_size, mask=(key >= begin) & (key < high), other=0)
    for _ in range(low, high, num_keys):
        there = (key >= begin) & (key < high)
        ahead = tl.load(table + (key + num_keys) // block_size, mask=key + num_keys < high, other=0)
        k = _load_heads(k_cache, block, key % block_size, kv_head, there, k_layout)
        v = _load_heads(v_cache, block, key % block_size, kv_head, there, v_layout)
        score = _dot(q, tl.trans(k), precision) * scale_log2
        score = tl.where(there[None, :] & _sees(position[:, None], key[None, :], span), score, float("-inf"))
        highest, total, acc = _updated(score, v, highest, total, acc, precision)
        block, key = ahead, key + num_keys
    part = ((tile * heads[0] + head) * num_splits + split).to(tl.int64)
    _store(acc, highest, total, index, head, live, part, out, parts, stats, out_layout, v_layout, num_splits)


@kernel
def _tile(tiles, query_start, seq_lens, tile):
    """Request and first new token of a tile; the request's first row among all queries, its new and all its tokens."""
    request, first = tl.load(tiles + 2 * tile), tl.load(tiles + 2 * tile + 1)
    start, end = tl.load(query_start + request), tl.load(query_start + request + 1)
    return request, first, start, end - start, tl.load(seq_lens + request)


@kernel
def _load_queries(query, index, head, live, q_layout: tl.constexpr, k_layout: tl.constexpr):
    """[rows, width] of one tile; 0 in rows that are none."""
    d = tl.arange(0, k_layout[4])
    places = query + index[:, None] * q_layout[0] + head[:, None] * q_layout[1] + d[None, :]
    return tl.load(places, mask=live[:, None] & (d < k_layout[3])[None, :], other=0.0)


@kernel
def _keys_of_tile(position, seq_len, num_tokens: tl.constexpr, span: tl.constexpr):
    """First key that a tile sees, and the one behind its last; ``position`` is that of the tile's first query."""
    begin = position * 0
    if span[0] > 0:
        begin = tl.maximum(begin, position - span[0] + 1)
    if span[1] > 0:
        begin = position // span[1] * span[1]
    return begin, tl.minimum(position + num_tokens, seq_len)


@kernel
def _split(begin, end, split, num_keys: tl.constexpr, num_splits: tl.constexpr):
    """The keys of one split: whole steps of ``num_keys`` from a multiple of it, which is where a block begins."""
    aligned = begin // num_keys * num_keys
    share = tl.cdiv(tl.cdiv(end - aligned, num_keys), num_splits) * num_keys
    low = aligned + split * share
    return low, tl.minimum(low + share, end)


@kernel
def _load_heads(cache, block, slot, kv_head, there, layout: tl.constexpr):
    """[keys, width] of one KV head; nothing is read where ``there`` is false."""
    d = tl.arange(0, layout[4])
    row = block.to(tl.int64) * layout[0] + slot * layout[1] + kv_head * layout[2]
    return tl.load(cache + row[:, None] + d[None, :], mask=there[:, None] & (d < layout[3])[None, :], other=0.0)


@kernel
def _sees(position, key, span: tl.constexpr):
    """Whether the query at ``position`` attends to ``key``."""
    sees = key <= position
    if span[0] > 0:
        sees = sees & (key > position - span[0])
    if span[1] > 0:
        sees = sees & (key >= position // span[1] * span[1])
    return sees


@kernel
def _dot(a, b, precision: tl.constexpr):
    """Product of two matrices, added up in float32.

    ``widened``: multiplied in float32 as well, for the interpreter, which would multiply the bits of bfloat16.
    """
    if precision == "widened":
        return tl.dot(a.to(tl.float32), b.to(tl.float32), input_precision="ieee")
    return tl.dot(a, b, input_precision=precision)


@kernel
def _updated(score, v, highest, total, acc, precision: tl.constexpr):
    """Maximum, sum and unscaled output of each row with one more step of keys (online softmax)."""
    higher = tl.maximum(highest, tl.max(score, 1))
    base = tl.where(higher == float("-inf"), 0.0, higher)  # of a row that has seen no key yet
    weight, shrink = tl.exp2(score - base[:, None]), tl.exp2(highest - base)
    acc = acc * shrink[:, None] + _dot(weight.to(v.dtype), v, precision)
    return higher, total * shrink + tl.sum(weight, 1), acc


@kernel
def _store(
    acc,
    highest,
    total,
    index,
    head,
    live,
    part,
    out,
    parts,
    stats,
    out_layout: tl.constexpr,
    v_layout: tl.constexpr,
    num_splits: tl.constexpr,
):
    """Write a tile's result: scaled to ``out`` where there is one split, otherwise with its maximum and sum."""
    dv = tl.arange(0, v_layout[4])
    written = live[:, None] & (dv < v_layout[3])[None, :]
    if num_splits == 1:
        total = tl.where(live, total, 1.0)
        place = out + index[:, None] * out_layout[0] + head[:, None] * out_layout[1] + dv[None, :]
        tl.store(place, (acc / total[:, None]).to(out.dtype.element_ty), mask=written)
    else:
        tl.store(parts + part[:, None] * v_layout[3] + dv[None, :], acc, mask=written)
        tl.store(stats + 2 * part, highest, mask=live)
        tl.store(stats + 2 * part + 1, total, mask=live)


@kernel
def reduce_splits(
    parts,
    stats,
    tiles,
    query_start,
    out,
    out_layout: tl.constexpr,
    heads: tl.constexpr,
    v_layout: tl.constexpr,
    num_splits: tl.constexpr,
    splits_width: tl.constexpr,
):
    """Add up the splits of one head of a tile of one token; a split without keys has the maximum -inf and the sum 0."""
    tile, head = tl.program_id(0), tl.program_id(1)
    token = tl.load(query_start + tl.load(tiles + 2 * tile)).to(tl.int64)
    split, dv = tl.arange(0, splits_width), tl.arange(0, v_layout[4])
    part = ((tile * heads[0] + head) * num_splits + split).to(tl.int64)
    exists = split < num_splits
    highest = tl.load(stats + 2 * part, mask=exists, other=float("-inf"))
    total = tl.load(stats + 2 * part + 1, mask=exists, other=0.0)
    weight = tl.exp2(highest - tl.max(highest, 0))
    mask = exists[:, None] & (dv < v_layout[3])[None, :]
    values = tl.load(parts + part[:, None] * v_layout[3] + dv[None, :], mask=mask, other=0.0)
    result = tl.sum(values * weight[:, None], 0) / tl.sum(total * weight, 0)
    place = out + token * out_layout[0] + head * out_layout[1] + dv
    tl.store(place, result.to(out.dtype.element_ty), mask=dv < v_layout[3])
