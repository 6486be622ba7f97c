"""Writing and reading back: nothing is lost where the format holds everything, and it is said where it does not."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.workloads.examples import EXAMPLES, lines
from tests.workloads.published import shared
from workloads import RequestBatch, WorkloadError, open_workload
from workloads.batch import concat
from workloads.columns import exact_ns
from workloads.parquet import ParquetWriter
from workloads.sampling import Sample
from workloads.stats.prefixes import hit_tokens
from workloads.writers import WRITERS, anonymous, seconds

TRACE = lines(
    {"id": "x", "arrival_s": 0.000000001, "prompt": [["a", 40], ["b", 7]], "output_tokens": 3, "session": "s"},
    {"id": "y", "arrival_s": 0.000000001, "prompt": [["a", 40], ["b", 9]], "output": [["c", 2]], "output_tokens": 2}
    | {"session": "s", "turn": 1, "think_s": 0.25, "priority": 3, "cache_salt": "t", "max_tokens": 9},
    {"id": "z", "arrival_s": 123456.789012345, "prompt_tokens": 5, "output_tokens": 3, "skip_cache": True},
)


def whole(path: Path, **settings: Any) -> RequestBatch:
    """A whole trace."""
    return concat(list(open_workload({"trace": path.name, **settings}, path.parent, 0).batches(2)))


def same(one: RequestBatch, other: RequestBatch, *, but: tuple[str, ...] = ()) -> None:
    """Raise unless two batches are equal in every column."""
    for column in fields(RequestBatch):
        if column.name not in but:
            a, b = getattr(one, column.name), getattr(other, column.name)
            assert a == b if isinstance(a, list) else np.array_equal(a, b), column.name


def by_appearance(batch: RequestBatch) -> list[int]:
    """The contents of a batch as numbers by first appearance."""
    known: dict[int, int] = {}
    return [known.setdefault(content, len(known)) for content in batch.span_content.tolist()]


def test_native_parquet_holds_everything(tmp_path: Path) -> None:
    (tmp_path / "t").write_text(TRACE)
    given = whole(tmp_path / "t")
    assert WRITERS["native-parquet"](lambda: iter([given]), tmp_path / "t.parquet") == {}
    same(whole(tmp_path / "t.parquet"), given)
    same(whole(tmp_path / "t.parquet", limit=2), given.slice(0, 2))


@pytest.mark.parametrize("name", EXAMPLES)
def test_every_format_goes_through_native_parquet(name: str, tmp_path: Path) -> None:
    text, settings = EXAMPLES[name]
    (tmp_path / "t").write_text(text)
    given = whole(tmp_path / "t", **settings)
    WRITERS["native-parquet"](lambda: iter([given]), tmp_path / "t.parquet")
    same(whole(tmp_path / "t.parquet"), given)


def test_native_lines_hold_everything_but_names_of_content(tmp_path: Path) -> None:
    (tmp_path / "t").write_text(TRACE)
    given = whole(tmp_path / "t")
    assert WRITERS["native"](lambda: iter([given]), tmp_path / "t.jsonl") == {}
    read = whole(tmp_path / "t.jsonl")
    same(read, given, but=("span_content", "salt"))
    assert by_appearance(read) == by_appearance(given)
    assert hit_tokens(read).tolist() == hit_tokens(given).tolist()


def test_mooncake_comes_back_byte_for_byte(tmp_path: Path) -> None:
    path = shared("traces/mooncake/conversation_trace.jsonl")
    given = concat(list(open_workload({"trace": str(path)}, path.parent, 0).batches(1 << 20)))
    assert WRITERS["mooncake"](lambda: iter([given]), tmp_path / "m.jsonl") == {}
    assert (tmp_path / "m.jsonl").read_bytes() == path.read_bytes()


def test_what_a_format_cannot_hold_is_counted(tmp_path: Path) -> None:
    (tmp_path / "t").write_text(TRACE)
    given = whole(tmp_path / "t")
    lost = WRITERS["mooncake"](lambda: iter([given]), tmp_path / "m.jsonl")
    assert lost == {"sessions": 2, "time_below_a_millisecond": 3, "waits_for_answers": 1}
    assert WRITERS["csv"](lambda: iter([given]), tmp_path / "t.csv") == {"sessions": 2, "content_of_several_spans": 2}
    assert whole(tmp_path / "t.csv").arrival_ns.tolist() == given.arrival_ns.tolist()


def test_anonymous_requests_share_what_they_shared(tmp_path: Path) -> None:
    (tmp_path / "t").write_text(TRACE)
    given = whole(tmp_path / "t")
    found = concat(list(anonymous([given.slice(0, 2), given.slice(2, 3)])))
    assert found.ids == ["0", "1", "2"]
    assert found.sessions == ["s0", "s0", None]
    assert found.arrival_ns[0] == 0
    assert found.salt.tolist() == [0, 1, 0]
    assert found.span_content.tolist() == [1, 2, 3, 1, 2, 4, 5, 6]
    same(found, given, but=("ids", "sessions", "arrival_ns", "salt", "span_content"))


def test_a_sample_holds_whole_sessions() -> None:
    batches = list(open_workload({"trace": "sample:agentic-sessions"}, Path(), 0).batches(50))
    everything = concat(batches)
    kept = concat(list(Sample(share=0.5, seed=3).of(batches)))
    chosen = set(kept.sessions)
    assert 0 < len(chosen) < len(set(everything.sessions))
    assert len(kept) == sum(session in chosen for session in everything.sessions)
    early = concat(list(Sample(from_ns=60 * 10**9, until_ns=120 * 10**9).of(batches)))
    assert early.arrival_ns.min() >= 60 * 10**9
    assert early.arrival_ns.max() < 120 * 10**9


@pytest.mark.parametrize("ns", [0, 1, 10**9 - 1, 86_400_123_456_789])
def test_seconds_read_back_as_their_nanoseconds(ns: int) -> None:
    assert exact_ns(repr(seconds(ns))) == ns


BAD: dict[str, tuple[dict[str, Any], str]] = {
    "unknown column": ({"more": np.ones(1)}, "unknown column 'more'; allowed: arrival_ns"),
    "zero prompt": ({"prompt_tokens": np.zeros(1, np.int64)}, "row 1: prompt_tokens or output_tokens is not from 1"),
    "negative time": ({"arrival_ns": -np.ones(1, np.int64)}, "row 1: arrival_ns goes backwards"),
    "short maximum": ({"max_tokens": np.ones(1, np.int64)}, "row 1: max_tokens is below output_tokens"),
    "texts for numbers": ({"output_tokens": ["many"]}, "not the columns of a native file"),
    "spans that do not add up": (
        {"prompt_spans": np.ones(1, np.int64), "span_content": (np.array([2]), np.ones(2, np.uint64))}
        | {"span_tokens": (np.array([2]), np.array([5, 4]))},
        "row 1: the spans do not add up",
    ),
    "spans of two lengths": (
        {"prompt_spans": np.ones(1, np.int64), "span_content": (np.array([1]), np.ones(1, np.uint64))}
        | {"span_tokens": (np.array([2]), np.array([5, 4]))},
        "span_content and span_tokens differ in length",
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_a_bad_native_parquet_gets_one_line(name: str, tmp_path: Path) -> None:
    usual = {"arrival_ns": np.zeros(1, np.int64), "prompt_tokens": np.array([5]), "output_tokens": np.array([3])}
    changed, expected = BAD[name]
    writer = ParquetWriter(tmp_path / "t.parquet", {})
    writer.write(usual | changed)
    writer.close()
    with pytest.raises(WorkloadError, match=expected):
        whole(tmp_path / "t.parquet")


def test_a_damaged_parquet_file_raises_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "t").write_text(TRACE)
    WRITERS["native-parquet"](lambda: iter([whole(tmp_path / "t")]), tmp_path / "good")
    good = (tmp_path / "good").read_bytes()
    mapped = {"columns": {"prompt_tokens": "prompt_tokens", "output_tokens": "output_tokens", "session": "session"}}
    refused = 0
    for place in range(4, len(good), len(good) // 150):
        (tmp_path / "bad").write_bytes(good[:place] + bytes([good[place] ^ 0xFF]) + good[place + 1 :])
        for settings in ({}, mapped | {"arrival": {"kind": "all_at_once"}}):
            try:
                whole(tmp_path / "bad", **settings)
            except WorkloadError:
                refused += 1
    assert refused > 50
