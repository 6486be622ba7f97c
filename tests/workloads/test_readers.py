"""Each format, read exactly: times, lengths, spans, names."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from workloads.content import MOONCAKE, NATIVE, content_id, named, salt_id


def spans(batch: Any, i: int) -> list[tuple[int, int]]:
    start, stop = batch.span_offsets[i : i + 2]
    return list(zip(batch.span_content[start:stop].tolist(), batch.span_tokens[start:stop].tolist(), strict=True))


def jsonl(*rows: dict[str, Any]) -> str:
    return "".join(json.dumps(row) + "\n" for row in rows)


def test_native_takes_every_key(write: Any, read: Any) -> None:
    write(
        jsonl(
            {"id": "a", "arrival_s": 0.1, "prompt": [["sys", 10], [7, 5]], "output_tokens": 3, "output": [["ans", 3]]},
            {"arrival_s": 2, "prompt_tokens": 4, "output_tokens": 2, "max_tokens": 9, "session": 5, "priority": -1}
            | {"encoder_tokens": 1500},
            {"id": 12, "arrival_s": 2.5, "prompt_tokens": 1, "output_tokens": 1, "cache_salt": "t", "skip_cache": True},
        )
    )
    batch = read(trace="trace.txt")
    assert batch.ids == ["a", "1", "12"]
    assert batch.arrival_ns.tolist() == [100_000_000, 2_000_000_000, 2_500_000_000]
    assert spans(batch, 0) == [(content_id("sys"), 10), (content_id(7), 5), (content_id("ans"), 3)]
    assert batch.prompt_spans.tolist() == [2, 1, 1]
    assert batch.prompt_tokens.tolist() == [15, 4, 1]
    assert batch.max_tokens.tolist() == [3, 9, 1]
    assert batch.sessions == [None, "5", None]
    assert batch.priority.tolist() == [0, -1, 0]
    assert batch.salt.tolist() == [0, 0, salt_id("t")]
    assert batch.skip_cache.tolist() == [False, False, True]
    assert batch.encoder_tokens.tolist() == [0, 1500, 0]
    assert len(set(batch.span_content.tolist())) == 7


def test_native_closed_loop(write: Any, read: Any) -> None:
    first = {"arrival_s": 1, "prompt_tokens": 4, "output_tokens": 2, "session": "s"}
    rows = [
        first | {"turn": 1, "think_s": 2.5},
        first | {"turn": 1, "think_s": 0},
        first | {"turn": 4, "think_s": 1e-9},
    ]
    write(jsonl(first, *rows))
    batch = read(trace="trace.txt", jitter_s=5)
    assert batch.turn.tolist() == [0, 1, 1, 4]
    assert batch.think_ns.tolist() == [-1, 2_500_000_000, 0, 1]
    assert len(set(batch.arrival_ns.tolist())) == 1


def test_given_lengths_may_repeat_what_the_spans_say(write: Any, read: Any) -> None:
    write(jsonl({"arrival_s": 0, "prompt": [["x", 6]], "prompt_tokens": 6, "output_tokens": 1}))
    assert read(trace="trace.txt").prompt_tokens.tolist() == [6]


def test_csv_without_prefix(write: Any, read: Any) -> None:
    write("arrival_s,prompt_tokens,output_tokens\n0.166361,374,44\n0.166361,396,109\n")
    batch = read(trace="trace.txt")
    assert batch.ids == ["0", "1"]
    assert batch.arrival_ns.tolist() == [166_361_000, 166_361_000]
    assert [[tokens for _, tokens in spans(batch, i)] for i in (0, 1)] == [[374, 44], [396, 109]]
    assert len(set(batch.span_content.tolist())) == 4


def test_csv_prefix_is_shared_and_the_rest_private(write: Any, read: Any) -> None:
    write(
        "prefix_id,prefix_tokens,Arrival_S, prompt_tokens ,output_tokens\r\n"
        'p,8,0,10,1\r\n"p",8,1,12,2\r\n,0,2,5,1\r\np,5,3,5,1\r\n,,4,5,1'
    )
    batch = read(trace="trace.txt")
    assert [[tokens for _, tokens in spans(batch, i)] for i in range(5)] == [
        [8, 2, 1],
        [8, 4, 2],
        [5, 1],
        [5, 1],
        [5, 1],
    ]
    assert spans(batch, 0)[0] == spans(batch, 1)[0] == (content_id("p"), 8)
    assert spans(batch, 3)[0] == (content_id("p"), 5)
    assert spans(batch, 0)[1][0] != spans(batch, 1)[1][0]
    assert batch.prompt_spans.tolist() == [2, 2, 1, 1, 1]


def test_mooncake_spans_follow_the_ids(write: Any, read: Any) -> None:
    write(
        jsonl(
            {"timestamp": 0, "input_length": 1300, "output_length": 5, "hash_ids": [46, 47, 2354]},
            {"timestamp": 3000, "input_length": 1024, "output_length": 7, "hash_ids": [46, 47]},
        )
    )
    batch = read(trace="trace.txt")
    a, b, c = named(np.array([46, 47, 2354]), MOONCAKE).tolist()
    assert spans(batch, 0)[:3] == [(a, 512), (b, 512), (c, 276)]
    assert spans(batch, 1)[:2] == [(a, 512), (b, 512)]
    assert batch.arrival_ns.tolist() == [0, 3_000_000_000]
    assert content_id(46) != a != named(np.array([46]), NATIVE)[0]


@pytest.mark.parametrize(("size", "given"), [(512, False), (16, False), (64, True)])
def test_mooncake_block_size_is_told_by_the_ids_or_the_rows(write: Any, opened: Any, size: int, given: bool) -> None:
    extra = {"block_size": size} if given else {}
    lengths = (1, size, size + 1, 3 * size - 1)
    rows = [
        {"timestamp": 0, "input_length": n, "output_length": 1, "hash_ids": list(range(-(-n // size))), **extra}
        for n in lengths
    ]
    write(jsonl(*rows))
    workload = opened(trace="trace.txt")
    (batch,) = workload.batches(100)
    assert batch.prompt_tokens.tolist() == list(lengths)
    assert batch.prompt_spans.tolist() == [1, 1, 2, 3]
    assert workload.describe()["trace_block_size"] == size


def test_mooncake_keeps_64_bit_ids(write: Any, read: Any) -> None:
    ids = [(1 << 64) - 1, (1 << 63) + 5, 3]
    write(jsonl({"timestamp": 0, "input_length": 1536, "output_length": 1, "hash_ids": ids}))
    batch = read(trace="trace.txt")
    assert batch.span_content[:3].tolist() == named(np.array(ids, dtype=np.uint64), MOONCAKE).tolist()


def test_bailian_rows_are_in_seconds_and_blocks_of_16(write: Any, opened: Any) -> None:
    row = {"chat_id": 159, "parent_chat_id": 55, "timestamp": 61.114, "input_length": 33, "output_length": 2}
    write(jsonl({**row, "type": "text", "turn": 2, "hash_ids": [1, 2, 3]}))
    workload = opened(trace="trace.txt")
    (batch,) = workload.batches(10)
    assert batch.arrival_ns.tolist() == [61_114_000_000]
    assert batch.span_tokens.tolist() == [16, 16, 1, 2]
    assert workload.describe()["dialect"] == "bailian"


def test_zero_lengths_of_published_traces_are_counted_not_dropped_silently(write: Any, opened: Any) -> None:
    write(
        jsonl(
            {"timestamp": 0, "input_length": 0, "output_length": 5, "hash_ids": []},
            {"timestamp": 0, "input_length": 5, "output_length": 0, "hash_ids": [1]},
            {"timestamp": 1, "input_length": 5, "output_length": 2, "hash_ids": [1]},
        )
    )
    workload = opened(trace="trace.txt")
    (batch,) = workload.batches(10)
    assert batch.ids == ["2"]
    assert workload.describe()["rows_skipped"] == {"zero_output_tokens": 1, "zero_prompt_tokens": 1}


def test_azure_2023_has_crlf_seven_digits_and_no_last_newline(write: Any, read: Any) -> None:
    write(
        "TIMESTAMP,ContextTokens,GeneratedTokens\r\n"
        "2023-11-16 23:59:59.9799600,4808,10\r\n2023-11-17 00:00:00.0000001,3180,8"
    )
    batch = read(trace="trace.txt")
    assert batch.arrival_ns.tolist() == [0, 20_040_100]
    assert batch.prompt_tokens.tolist() == [4808, 3180]
    assert batch.output_tokens.tolist() == [10, 8]


def test_azure_2024_mixes_two_forms_of_time(write: Any, read: Any) -> None:
    write(
        "TIMESTAMP,ContextTokens,GeneratedTokens\n2024-05-12 00:00:00+00:00,1,1\n"
        "2024-05-12 00:00:00.001163+00:00,2,1\n2024-05-12T02:00:01+02:00,3,1\n2024-05-12T00:00:02Z,4,1\n"
    )
    assert read(trace="trace.txt").arrival_ns.tolist() == [0, 1_163_000, 1_000_000_000, 2_000_000_000]


@pytest.mark.parametrize("name", ["trace.csv", "trace.jsonl", "trace.gz", "trace"])
def test_the_format_is_told_by_the_content_not_the_name(write: Any, read: Any, name: str) -> None:
    text = "arrival_s,prompt_tokens,output_tokens\n0,3,1\n"
    write(b"\xef\xbb\xbf\n  \n" + text.encode(), name)
    plain = read(trace=name)
    write(gzip.compress(text.encode()[:20]) + gzip.compress(text.encode()[20:]), name)
    assert read(trace=name).prompt_tokens.tolist() == plain.prompt_tokens.tolist() == [3]


def test_blank_lines_do_not_shift_line_numbers(write: Any, read: Any) -> None:
    write("\narrival_s,prompt_tokens,output_tokens\n\n0,3,1\n\n \n0,-3,1\n")
    with pytest.raises(Exception, match=r"trace\.txt:7: prompt_tokens is '-3'"):
        read(trace="trace.txt")


@pytest.mark.parametrize(
    ("path", "requests", "prompt_tokens", "blocks"),
    [
        ("traces/mooncake/conversation_trace.jsonl", 12_031, 144_793_823, 182_790),
        ("traces/mooncake/synthetic_trace.jsonl", 3_993, 61194628, 43_924),
        ("traces/azure_2023/AzureLLMInferenceTrace_conv.csv", 19_366, 22_361_870, None),
        ("traces/azure_2023/AzureLLMInferenceTrace_code.csv", 8_819, 18_059_974, None),
        ("workloads/w1_azureconv_2000_q6.45.csv", 2_000, None, None),
        ("workloads/w3_sharedprefix_1000_q8.csv", 1_000, None, None),
    ],
)
def test_whole_published_traces(
    read: Any, shared_data: Path, path: str, requests: int, prompt_tokens: int | None, blocks: int | None
) -> None:
    batch = read(trace=str(shared_data / path))
    assert len(batch) == requests
    assert prompt_tokens in (None, batch.prompt_tokens.sum())
    if blocks is not None:
        prompts = np.ones(len(batch.span_content), dtype=np.bool_)
        prompts[batch.span_offsets[1:] - 1] = False
        assert len(np.unique(batch.span_content[prompts])) == blocks
        assert len(np.unique(batch.span_content)) == blocks + requests
