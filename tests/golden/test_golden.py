"""The project gives vLLM's recorded answers, on machines without vLLM too; and a wrong answer would be noticed."""

from __future__ import annotations

import copy
import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.oracle.difference import Comparison, Difference, Line
from tests.oracle.our_side import our_side

RECORDS = sorted(Path(__file__).parent.glob("*.jsonl.gz"))


def read(path: Path) -> tuple[dict[str, Any], list[Line]]:
    """The head of a record (vLLM's version, the command, the case) and vLLM's lines."""
    head, *lines = (json.loads(line) for line in gzip.decompress(path.read_bytes()).decode().splitlines())
    return head, lines


def test_records_say_what_they_are() -> None:
    assert RECORDS
    assert sum(path.stat().st_size for path in RECORDS) < 300_000
    for path in RECORDS:
        head, lines = read(path)
        assert head["vllm"] == "0.33.0"
        assert head["command"].startswith("python tests/oracle/record_golden.py")
        assert lines[-1]["done"]["steps"] == sum("step" in line for line in lines)


def test_records_show_the_events_that_matter() -> None:
    steps = [line for path in RECORDS for line in read(path)[1] if "step" in line]
    assert any(line["preempted"] for line in steps)
    assert any(cached > 0 for line in steps for _, cached in line["hits"])
    assert any("copies" in line for line in steps)
    assert sum(read(path)[1][-1]["done"]["evictions"] for path in RECORDS) > 0
    verified = [line["drafts"] for path in RECORDS for line in read(path)[1] if "drafts" in line]
    assert any(0 < accepted < drafts for _, drafts, accepted in verified)


@pytest.mark.parametrize("path", RECORDS, ids=lambda path: path.name.removesuffix(".jsonl.gz"))
def test_same_as_vllm(path: Path) -> None:
    head, theirs = read(path)
    difference = Comparison().run(our_side(head["case"]), theirs)
    assert difference is None, f"{path.name}: {difference}"


# --- the comparison itself: a log with one thing changed differs there ------------------------------------------------


def _record() -> list[Line]:
    return read(next(path for path in RECORDS if path.name.startswith("preemptions-async")))[1]


def _changed(change: Callable[[list[Line]], int]) -> tuple[Difference | None, int]:
    theirs = _record()
    ours = copy.deepcopy(theirs)
    step = change(ours)
    return Comparison().run(ours, theirs), step


def _last(lines: list[Line], key: str, test: Callable[[Line], bool] = bool) -> Line:
    return next(line for line in reversed(lines) if key in line and test(line))


def _one_token_more(lines: list[Line]) -> int:
    line = _last(lines, "step", lambda line: len(line["scheduled"]) > 1)
    line["scheduled"][1][1] += 1
    return int(line["step"])


def _another_order(lines: list[Line]) -> int:
    line = _last(lines, "step", lambda line: len(line["scheduled"]) > 1)
    line["scheduled"].reverse()
    return int(line["step"])


def _preemption_missing(lines: list[Line]) -> int:
    line = _last(lines, "step", lambda line: bool(line["preempted"]))
    line["preempted"].pop()
    return int(line["step"])


def _another_hit(lines: list[Line]) -> int:
    line = _last(lines, "step", lambda line: bool(line["hits"]))
    line["hits"][0][1] += 1
    return int(line["step"])


def _another_block(lines: list[Line]) -> int:
    line = _last(lines, "step", lambda line: bool(line["new_blocks"]))
    group = next(group for group in line["new_blocks"][0][1] if group)
    group[-1] += 1
    return int(line["step"])


def _a_block_less(lines: list[Line]) -> int:
    line = _last(lines, "step")
    line["free_blocks"] -= 1
    return int(line["step"])


def _a_copy_more(lines: list[Line]) -> int:
    line = _last(lines, "step")
    line["copies"] = [[1, 2]]
    return int(line["step"])


def _another_eviction_order(lines: list[Line]) -> int:
    line = _last(lines, "state", lambda line: len(line["free"]) > 1)
    line["free"][:2] = line["free"][1::-1]
    return int(line["state"])


def _another_table(lines: list[Line]) -> int:
    line = _last(lines, "state", lambda line: bool(line["tables"]))
    next(iter(line["tables"].values()))[0].append(1)
    return int(line["state"])


CHANGES = (
    _one_token_more,
    _another_order,
    _preemption_missing,
    _another_hit,
    _another_block,
    _a_block_less,
    _a_copy_more,
    _another_eviction_order,
    _another_table,
)


def test_equal_logs_are_equal() -> None:
    assert _changed(lambda _: 0)[0] is None


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__.strip("_"))
def test_a_change_is_found_at_its_step(change: Callable[[list[Line]], int]) -> None:
    difference, step = _changed(change)
    assert difference is not None
    assert difference.step == step


def test_a_missing_end_and_another_finish_are_found() -> None:
    theirs = _record()
    last_finish = max(index for index, line in enumerate(theirs) if "finished" in line)
    assert Comparison().run(theirs[:last_finish], theirs) is not None
    assert Comparison().run([*theirs[:last_finish], {"finished": "nobody", "tables": []}], theirs) is not None


def test_blocks_of_requests_without_new_ones_may_be_left_out() -> None:
    theirs = _record()
    ours = copy.deepcopy(theirs)
    for line in ours:
        if "step" in line:
            line["new_blocks"].append(["idle", [[], [], []]])
    assert Comparison().run(ours, theirs) is None
