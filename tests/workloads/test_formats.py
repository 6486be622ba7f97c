"""Published formats, a few rows of each: what is read of them, what is left out, and how their loops close."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.workloads.examples import EXAMPLES, lines, weka
from workloads import RequestBatch, WorkloadError, open_workload
from workloads.batch import concat
from workloads.readers import FORMATS


def spans(batch: RequestBatch, i: int) -> list[tuple[int, int]]:
    """The spans of one request."""
    where = slice(*batch.span_offsets[i : i + 2])
    return list(zip(batch.span_content[where].tolist(), batch.span_tokens[where].tolist(), strict=True))


def prompt(batch: RequestBatch, i: int) -> list[tuple[int, int]]:
    """The spans of one prompt."""
    return spans(batch, i)[: batch.prompt_spans[i]]


@pytest.fixture
def example(tmp_path: Path) -> Any:
    """Reads an example, or another text under its settings, into one batch and its description."""

    def read(name: str, content: str | None = None, **more: Any) -> tuple[RequestBatch, dict[str, Any]]:
        text, settings = EXAMPLES[name]
        (tmp_path / "t").write_text(text if content is None else content)
        workload = open_workload({"trace": "t", **settings, **more}, tmp_path, 0)
        return concat(list(workload.batches(1000))), workload.describe()

    return read


# name: format, arrivals in ns, prompts, outputs, rows left out
READ: dict[str, tuple[str, list[int], list[int], list[int], dict[str, int]]] = {
    "mooncake-delta": ("mooncake-delta", [0, 0, 0], [600, 612, 623], [4, 3, 3], {}),
    "agentic-mooncake": ("agentic-mooncake", [0, 0, 0], [8, 4, 5], [2, 2, 2], {}),
    "dynamo": ("dynamo", [0, 20 * 10**6], [3, 7], [2, 2], {"other_events": 1}),
    "kv-cache-tester": (
        "kv-cache-tester",
        [0, 5 * 10**9, 9 * 10**9],
        [130, 130, 200],
        [5, 4, 6],
        {"zero_output_tokens": 1},
    ),
    "tracelab": ("tracelab", [0, 8 * 10**9], [50, 75], [10, 10], {}),
    "tracelab-csv": ("tracelab-csv", [0, 0], [2318, 2866], [200, 131], {}),
    "llmservingsim": ("llmservingsim", [0, 4, 4], [18, 4, 4], [3, 2, 2], {}),
    "aibrix": ("aibrix", [0, 2001 * 10**6], [3, 3], [8, 4], {"no_output_tokens": 2}),
    "applied-compute": ("applied-compute", [0, 0], [16, 28], [4, 5], {}),
    "vllm-result": ("vllm-result", [0, 5 * 10**8], [7, 5], [3, 2], {"failed": 1}),
    "sharegpt": ("texts", [0], [18], [10], {"conversation_without_an_answer": 1}),
    "custom": ("texts", [0], [16], [12], {}),
    "lmcache": ("texts", [0], [16], [2], {}),
    "otel": ("otel", [0, 25 * 10**8], [46, 50], [2, 20], {"spans_of_something_else": 1}),
    "otlp": ("otel", [0, 1], [7, 5], [8, 6], {}),
    "burstgpt": ("burstgpt", [0, 2 * 10**9], [906, 36], [446, 7], {"zero_output_tokens": 1}),
    "vidur": ("vidur", [0, 2 * 10**9], [3742, 18], [284, 243], {}),
    "splitwise-sim": ("splitwise-sim", [0], [9], [4], {}),
    "azure-multimodal": ("azure-multimodal", [0], [770], [491], {}),
    "table": ("table", [0, 250_500_000], [10, 12], [2, 3], {}),
    "table of objects": ("table", [0, 1_250_000_000], [4, 4], [5, 5], {}),
}


@pytest.mark.parametrize("name", EXAMPLES)
def test_what_is_read(name: str, example: Any) -> None:
    batch, described = example(name)
    form, arrivals, prompts, outputs, skipped = READ[name]
    assert described["format"] == form
    assert batch.arrival_ns.tolist() == arrivals
    assert batch.prompt_tokens.tolist() == prompts
    assert batch.output_tokens.tolist() == outputs
    assert described["rows_skipped"] == skipped


def test_every_format_has_an_example() -> None:
    elsewhere = {"native", "native-parquet", "csv", "mooncake", "azure", "ragpulse"}
    assert {form for form, *_ in READ.values()} | elsewhere == set(FORMATS)


@pytest.mark.parametrize("name", ["mooncake-delta", "tracelab-csv", "applied-compute"])
def test_a_turn_begins_with_the_last_prompt_and_its_answer(name: str, example: Any) -> None:
    batch, described = example(name)
    assert described["closed_loop"]
    for i in range(1, len(batch)):
        assert prompt(batch, i)[: len(spans(batch, i - 1))] == spans(batch, i - 1)
        assert batch.think_ns[i] >= 0


def test_a_conversation_hits_its_own_answers(example: Any) -> None:
    talk = [("human", "a" * 70), ("gpt", "b" * 40), ("human", "c" * 90), ("gpt", "d" * 40)]
    rows = [{"conversations": [{"from": who, "value": said} for who, said in talk]}] * 2
    batch, described = example("sharegpt", json.dumps(rows), turn_think_s=7)
    assert described["token_counts"] == "estimate: 4 characters a token"
    assert batch.turn.tolist() == [0, 1, 0, 1]
    assert batch.think_ns.tolist() == [-1, 7 * 10**9] * 2
    assert batch.arrival_ns.tolist() == [0, 0, 2 * 10**9, 2 * 10**9]
    assert prompt(batch, 1)[: len(spans(batch, 0))] == spans(batch, 0)
    assert spans(batch, 1) == spans(batch, 3)


def test_texts_that_cannot_be_counted_say_what_to_do(example: Any) -> None:
    with pytest.raises(
        WorkloadError, match=r"texts, not token counts: set workload.tokenizer .* or workload.chars_per_"
    ):
        example("sharegpt", chars_per_token=None)
    with pytest.raises(WorkloadError, match=r"workload.tokenizer: (no such file|.*is not installed)"):
        example("sharegpt", tokenizer="nowhere.json")


def test_recorded_sessions_open_or_closed(example: Any) -> None:
    opened, _ = example("kv-cache-tester")
    closed, described = example("kv-cache-tester", closed_loop=True)
    assert opened.think_ns.tolist() == [-1, -1, -1]
    assert closed.think_ns.tolist() == [-1, 2_500_000_000, 3_500_000_000]
    assert closed.arrival_ns.tolist() == [0, 0, 0]
    assert described["closed_loop"]


def test_loops_that_cannot_be_opened_or_closed(example: Any) -> None:
    with pytest.raises(WorkloadError, match=r"closed_loop is false, but later turns of .* have no time of their own"):
        example("mooncake-delta", closed_loop=False)
    with pytest.raises(WorkloadError, match="closed_loop is true, but the trace does not say which request waits"):
        example("burstgpt", closed_loop=True)


def test_an_arrival_process_starts_sessions(example: Any) -> None:
    given, _ = example("kv-cache-tester")
    moved, _ = example("tracelab-csv", arrival={"kind": "constant", "rate_per_s": 1})
    assert moved.arrival_ns.tolist() == [0, 0]
    moved, _ = example("kv-cache-tester", arrival={"kind": "constant", "rate_per_s": 1})
    assert moved.arrival_ns.tolist() == given.arrival_ns.tolist()
    moved, _ = example("burstgpt", arrival={"kind": "constant", "rate_per_s": 4})
    assert moved.arrival_ns.tolist() == [0, 250_000_000]


def test_ids_of_a_session_file_are_its_own_and_copies_are_left_out(tmp_path: Path) -> None:
    folder = tmp_path / "sessions"
    folder.mkdir()
    (folder / "a.json").write_text(json.dumps(weka()))
    (folder / "b.json").write_text(json.dumps(weka(id="two")))
    changed = weka(id="three")
    changed["requests"][0]["in"] += 1
    (folder / "c.json").write_text(json.dumps(changed))
    with pytest.raises(
        WorkloadError, match="sessions have no start of their own, and there is more than one; give work"
    ):
        list(open_workload({"trace": "sessions"}, tmp_path, 0).batches(10))
    workload = open_workload({"trace": "sessions", "arrival": {"kind": "all_at_once"}}, tmp_path, 0)
    batch = concat(list(workload.batches(10)))
    described = workload.describe()
    assert described["files"] == 3
    assert described["rows_skipped"] == {"copy_of_another_session": 4, "zero_output_tokens": 2}
    assert set(batch.sessions) == {"one", "three"}
    one, three = (
        {c for i, s in enumerate(batch.sessions) if s == name for c, _ in prompt(batch, i)} for name in ("one", "three")
    )
    assert not one & three


def test_equal_tokens_are_equal_content(example: Any) -> None:
    row = {"input_toks": 40, "output_toks": 3, "arrival_time_ns": 5}
    rows = [row | {"input_tok_ids": [*range(32), *tail]} for tail in (range(8), range(1, 9))]
    batch, _ = example("llmservingsim", lines(*rows))
    assert prompt(batch, 0)[:2] == prompt(batch, 1)[:2]
    assert prompt(batch, 0)[2] != prompt(batch, 1)[2]


def test_a_bailian_chat_is_one_session(write: Any, read: Any) -> None:
    row = {"input_length": 20, "output_length": 3, "type": "text", "hash_ids": [1, 2]}
    chats = [(7, -1, 1), (8, 7, 2), (9, 8, 3), (11, 3, 2)]
    write(lines(*(row | {"chat_id": c, "parent_chat_id": p, "turn": t, "timestamp": c / 2} for c, p, t in chats)))
    batch = read(trace="trace.txt")
    assert batch.sessions == ["7", "7", "7", "3"]
    assert batch.turn.tolist() == [0, 1, 2, 1]


def test_mooncake_dates_and_block_sizes(write: Any, opened: Any) -> None:
    row = {"input_length": 70, "output_length": 3, "hash_ids": [1, 2, 3]}
    write(lines(row | {"timestamp": 1731600000.25}, row | {"timestamp": 1731600001.5}))
    workload = opened(trace="trace.txt", block_size=32)
    batch = concat(list(workload.batches(10)))
    assert batch.arrival_ns.tolist() == [0, 1_250_000_000]
    assert workload.describe()["clock"] == "dates in seconds, from the first one"
    assert batch.span_tokens.tolist() == [32, 32, 6, 3] * 2


BAD = {
    "agentic-mooncake": ('"p", "input_length": 4', '"p", "input_length": 9', "t:3: 1 hash_ids do not cover 9 tokens"),
    "dynamo": (
        '"input_length": 7',
        '"input_length": 13',
        "t:1: request: replay: 2 input_sequence_hashes do not cover 13",
    ),
    "kv-cache-tester": ('"in": 200', '"in": 300', r"t: requests\[2\]: 3 hash_ids do not cover in = 300 tokens in 64"),
    "tracelab": ("2026-06-01T05:40:09.5Z", "yesterday", r"t:2: timing_events\[0\]: timestamp is 'yesterday'"),
    "tracelab-csv": ("0,117,1,2518", "0,117,1,2519", "t:3: round 1 with a prefix of 2519 tokens does not continue"),
    "llmservingsim": ('"input_toks": 18', '"input_toks": 17', "t:1: input_tok_ids is 18; allowed: as many ids as tok"),
    "vllm-result": ('"start_times": [70.5, ', '"start_times": [', "hold 3, 3, 2 and 3 entries; save the result with"),
    "mooncake-delta": ('"hash_ids": [3]', '"hash_ids": [3, 4]', "t:2: 2 hash_ids do not cover 8 tokens in 512"),
    "applied-compute": ("[0.01]", "[]", "t:1: 1 answers, 1 tool results and 0 waits"),
    "otel": (
        '"start_time": "2026-02-25T12:00:03+00:00"',
        '"start_time": "now"',
        r"t: spans\[1\]: start_time is 'now'; allowed: YYYY",
    ),
    "burstgpt": ("19440111.5", "1", "t:3: timestamp goes backwards"),
    "table": ("1750.5", "soon", "t:3: start_ms is 'soon'; allowed: numbers"),
}


@pytest.mark.parametrize("name", BAD)
def test_a_bad_row_gets_one_line(name: str, example: Any, tmp_path: Path) -> None:
    before, after, expected = BAD[name]
    text = EXAMPLES[name][0]
    assert before in text
    with pytest.raises(WorkloadError) as caught:
        example(name, text.replace(before, after, 1))
    message = str(caught.value).replace(str(tmp_path / "t"), "t")
    assert "\n" not in message
    with pytest.raises(WorkloadError, match=expected):
        raise WorkloadError(message)


def test_columns_that_are_not_there(example: Any) -> None:
    for columns, expected in (
        ({"arrival": "start_ms"}, "workload.columns: prompt_tokens, output_tokens missing"),
        ({"promt_tokens": "isl"}, "unknown key 'promt_tokens' .did you mean 'prompt_tokens'"),
        ({"prompt_tokens": "isl", "output_tokens": "tokens"}, "no column 'tokens'; there is start_ms, isl, osl, user"),
        ({"arrival": "isl", "prompt_tokens": "isl", "output_tokens": "osl"}, "set workload.time_unit to s, ms, us or"),
    ):
        with pytest.raises(WorkloadError, match=expected):
            example("table", columns=columns)


def test_a_table_in_parquet(tmp_path: Path) -> None:
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    stamps = pa.array([10**18 + 5, 10**18 + 8], pa.timestamp("ns"))
    pq.write_table(pa.table({"When": stamps, "isl": [4, 5], "osl": [6, 7]}), tmp_path / "t.parquet")
    columns = {"arrival": "when", "prompt_tokens": "isl", "output_tokens": "osl"}
    batch = concat(list(open_workload({"trace": "t.parquet", "columns": columns}, tmp_path, 0).batches(10)))
    assert batch.arrival_ns.tolist() == [0, 3]
    assert batch.prompt_tokens.tolist() == [4, 5]
    with pytest.raises(WorkloadError, match="a Parquet file with the columns When, isl, osl; say which are which"):
        open_workload({"trace": "t.parquet"}, tmp_path, 0)
    assert not np.array_equal(batch.span_content[:1], batch.span_content[1:2])
