"""Writing requests: native Parquet and JSON Lines hold everything, Mooncake and CSV what their formats can."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from workloads.batch import OPEN_LOOP, RequestBatch, offsets
from workloads.content import PRIVATE_OUTPUT, PRIVATE_PROMPT, U64, named
from workloads.parquet import ParquetWriter
from workloads.readers.native_parquet import OPTIONAL, SPANS, VERSION
from workloads.stats.reuse import block_names

MOONCAKE_BLOCK = 512
Batches = Callable[[], Iterator[RequestBatch]]
"""A function that starts a fresh pass over the requests."""


def write_parquet(batches: Batches, path: Path) -> dict[str, int]:
    """Native Parquet, in two passes: columns at their default throughout are left out. Nothing is lost."""
    needed = set[str]()
    row = 0
    for batch in batches():
        needed |= unusual(batch, row)
        row += len(batch)
    writer = ParquetWriter(path, VERSION)
    for batch in batches():
        writer.write({name: column for name, column in columns(batch).items() if name in needed})
    writer.close()
    return {}


def columns(batch: RequestBatch) -> dict[str, Any]:
    """The columns of a native Parquet file."""
    counts = np.diff(batch.span_offsets)
    found: dict[str, Any] = {name: getattr(batch, name) for name in ("arrival_ns", "prompt_tokens", "output_tokens")}
    found |= {"prompt_spans": batch.prompt_spans}
    found |= {"span_content": (counts, batch.span_content), "span_tokens": (counts, batch.span_tokens)}
    found |= {name: getattr(batch, name).astype(kind if kind != "bool" else "uint8") for name, kind in OPTIONAL.items()}
    return found | {"id": batch.ids, "session": batch.sessions}


def unusual(batch: RequestBatch, row: int) -> set[str]:
    """The columns that a batch, whose first request is number ``row``, cannot do without."""
    rows = np.arange(row, row + len(batch), dtype=np.int64)
    private = np.stack([named(rows, PRIVATE_PROMPT), named(rows, PRIVATE_OUTPUT)], axis=1).ravel()
    needed = {"arrival_ns", "prompt_tokens", "output_tokens"}
    if len(batch.span_content) != len(private) or not np.array_equal(batch.span_content, private):
        needed |= set(SPANS)
    if batch.ids != [str(i) for i in rows.tolist()]:
        needed.add("id")
    if any(session is not None for session in batch.sessions):
        needed.add("session")
    usual: dict[str, Any] = dict.fromkeys(OPTIONAL, 0) | {"max_tokens": batch.output_tokens, "think_ns": OPEN_LOOP}
    return needed | {name for name, value in usual.items() if (getattr(batch, name) != value).any()}


def write_native(batches: Batches, path: Path) -> dict[str, int]:
    """Native JSON Lines; contents become numbers. Nothing is lost."""
    with path.open("w", encoding="utf-8", newline="\n") as stream:
        for batch in batches():
            stream.writelines(json.dumps(row) + "\n" for row in native_rows(batch))
    return {}


def native_rows(batch: RequestBatch) -> Iterator[dict[str, Any]]:
    """The rows of a native trace."""
    pairs = list(zip(batch.span_content.tolist(), batch.span_tokens.tolist(), strict=True))
    optional = {name: getattr(batch, name).tolist() for name in ("priority", "encoder_tokens", "turn")}
    lengths = zip(batch.output_tokens.tolist(), batch.max_tokens.tolist(), strict=True)
    starts, middles = batch.span_offsets.tolist(), (batch.span_offsets[:-1] + batch.prompt_spans).tolist()
    for i, (output, longest) in enumerate(lengths):
        row: dict[str, Any] = {"id": batch.ids[i], "arrival_s": seconds(int(batch.arrival_ns[i]))}
        row["prompt"] = [list(pair) for pair in pairs[starts[i] : middles[i]]]
        row["output_tokens"] = output
        row["output"] = [list(pair) for pair in pairs[middles[i] : starts[i + 1]]]
        row |= {name: values[i] for name, values in optional.items() if values[i]}
        row |= {"max_tokens": longest} if longest != output else {}
        row |= {"session": batch.sessions[i]} if batch.sessions[i] is not None else {}
        row |= {"think_s": seconds(int(batch.think_ns[i]))} if batch.think_ns[i] > OPEN_LOOP else {}
        row |= {"skip_cache": True} if batch.skip_cache[i] else {}
        row |= {"cache_salt": int(batch.salt[i])} if batch.salt[i] else {}
        yield row


def seconds(ns: int) -> float | int:
    """Nanoseconds as seconds that read back as the same nanoseconds.

    >>> seconds(1_500_000_000), seconds(3 * 10**9)
    (1.5, 3)
    """
    return ns // 10**9 if ns % 10**9 == 0 else float(f"{ns // 10**9}.{ns % 10**9:09d}")


def write_mooncake(batches: Batches, path: Path) -> dict[str, int]:
    """Mooncake JSON Lines: whole milliseconds, 512-token block ids numbered by first appearance; nothing else fits.

    Returns how many rows lost what: prefixes are shared in whole blocks from there on.
    """
    lost = {"time_below_a_millisecond": 0, "sessions": 0, "waits_for_answers": 0}
    known: dict[int, int] = {}
    with path.open("w", encoding="utf-8", newline="\n") as stream:
        for batch in batches():
            lost["time_below_a_millisecond"] += int((batch.arrival_ns % 10**6 > 0).sum())
            lost["sessions"] += sum(session is not None for session in batch.sessions)
            lost["waits_for_answers"] += int((batch.think_ns > OPEN_LOOP).sum())
            stream.writelines(json.dumps(row) + "\n" for row in mooncake_rows(batch, known))
    return {reason: rows for reason, rows in lost.items() if rows}


def mooncake_rows(batch: RequestBatch, known: dict[int, int]) -> Iterator[dict[str, Any]]:
    """The rows of a Mooncake trace; ``known`` numbers the blocks met so far."""
    owner, names = block_names(batch, MOONCAKE_BLOCK, partial=True)
    ids = [known.setdefault(name, len(known)) for name in names.tolist()]
    ends = offsets(np.bincount(owner, minlength=len(batch))).tolist()
    for i in range(len(batch)):
        yield {
            "timestamp": int(batch.arrival_ns[i]) // 10**6,
            "input_length": int(batch.prompt_tokens[i]),
            "output_length": int(batch.output_tokens[i]),
            "hash_ids": ids[ends[i] : ends[i + 1]],
        }


def write_csv(batches: Batches, path: Path) -> dict[str, int]:
    """Plain CSV: arrivals and lengths. Returns how many rows lost a session or shared content."""
    lost = {"sessions": 0, "content_of_several_spans": 0}
    with path.open("w", encoding="utf-8", newline="\n") as stream:
        stream.write("arrival_s,prompt_tokens,output_tokens\n")
        for batch in batches():
            lost["sessions"] += sum(session is not None for session in batch.sessions)
            lost["content_of_several_spans"] += int((batch.prompt_spans > 1).sum())
            columns = (batch.arrival_ns.tolist(), batch.prompt_tokens.tolist(), batch.output_tokens.tolist())
            for arrival, prompt, output in zip(*columns, strict=True):
                stream.write(f"{arrival // 10**9}.{arrival % 10**9:09d},{prompt},{output}\n")
    return {reason: rows for reason, rows in lost.items() if rows}


WRITERS: dict[str, Callable[[Batches, Path], dict[str, int]]] = {
    "native-parquet": write_parquet,
    "native": write_native,
    "mooncake": write_mooncake,
    "csv": write_csv,
}
ENDINGS = {".parquet": "native-parquet", ".jsonl": "native", ".csv": "csv"}


def numbered(contents: U64, known: dict[int, int]) -> U64:
    """Contents as numbers from 1 by first appearance; ``known`` remembers those of batches before."""
    return np.array([known.setdefault(content, len(known) + 1) for content in contents.tolist()], dtype=np.uint64)


def anonymous(batches: Iterable[RequestBatch]) -> Iterator[RequestBatch]:
    """The same requests without names: contents, salts and sessions numbered, ids row numbers, times from 0.

    Which content is equal, lengths, arrivals, priorities and who waits for whom stay; nothing else does.
    """
    contents: dict[int, int] = {}
    salts: dict[int, int] = {0: 0}
    sessions: dict[str, int] = {}
    row, start = 0, None
    for batch in batches:
        start = int(batch.arrival_ns[0]) if start is None else start
        names = [None if name is None else f"s{sessions.setdefault(name, len(sessions))}" for name in batch.sessions]
        salted = [salts.setdefault(salt, len(salts)) for salt in batch.salt.tolist()]
        fields = {name: getattr(batch, name) for name in RequestBatch.__slots__}
        fields |= {"ids": [str(row + i) for i in range(len(batch))], "sessions": names}
        fields |= {"arrival_ns": batch.arrival_ns - start, "salt": np.array(salted, dtype=np.uint64)}
        yield RequestBatch(**(fields | {"span_content": numbered(batch.span_content, contents)}))
        row += len(batch)
