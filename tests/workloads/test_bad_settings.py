"""Settings of a trace workload that cannot be used: each gets its key path and what is allowed."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from workloads import WorkloadError, open_workload

CSV = "arrival_s,prompt_tokens,output_tokens\n"
SETTINGS: dict[str, tuple[dict[str, Any], str]] = {
    "no such file": ({"trace": "trase.csv"}, r"trase\.csv: no such trace file \(did you mean 'trace\.csv'\?\)"),
    "no such folder": ({"trace": "x/y.csv"}, "no such trace file: the folder .* cannot be listed"),
    "a folder": ({"trace": "."}, "the trace is a folder without trace files .*; give a file"),
    "a device": ({"trace": "/dev/zero"}, "/dev/zero: the trace is not a regular file"),
    "a name too long": ({"trace": "x" * 5000}, "cannot read the trace: File name too long"),
    "a zero in the name": ({"trace": "a\0b"}, "workload.trace: .*non-empty string"),
    "no name": ({"trace": 7}, "workload.trace: 7 given; allowed: a non-empty string"),
    "no such sample": (
        {"trace": "sample:azure-conv"},
        "workload.trace: unknown sample 'azure-conv' .did you mean 'azure-",
    ),
    "nothing": ({}, "workload: give either a trace or a synthetic"),
    "both": ({"trace": "trace.csv", "synthetic": {}}, "workload: trace cannot be given together with synthetic"),
    "unknown key": (
        {"trace": "trace.csv", "jitter": 3},
        r"workload: unknown key 'jitter' \(did you mean 'jitter_s'\?\)",
    ),
    "unknown format": (
        {"trace": "trace.csv", "format": "moncake"},
        "workload: unknown format 'moncake' .did you mean 'mo",
    ),
    "another format": ({"trace": "trace.csv", "format": "mooncake"}, "trace.csv:1: not valid JSON"),
    "limit 0": ({"trace": "trace.csv", "limit": 0}, "workload.limit: 0 given; allowed: whole numbers from 1"),
    "limit true": ({"trace": "trace.csv", "limit": True}, "workload.limit: True given"),
    "limit 2.0": ({"trace": "trace.csv", "limit": 2.0}, r"workload.limit: 2\.0 given"),
    "time_scale 0": ({"trace": "trace.csv", "time_scale": 0}, "workload.time_scale: 0 given; allowed: numbers above 0"),
    "time_scale inf": ({"trace": "trace.csv", "time_scale": float("inf")}, "workload.time_scale: inf given"),
    "time_scale too large": ({"trace": "late.csv", "time_scale": 1e6}, "moves an arrival beyond 10\\^9 s"),
    "jitter_s negative": (
        {"trace": "trace.csv", "jitter_s": -1},
        "workload.jitter_s: -1 given; allowed: numbers from 0",
    ),
    "jitter_s NaN": ({"trace": "trace.csv", "jitter_s": float("nan")}, "workload.jitter_s: nan given"),
    "jitter_s text": ({"trace": "trace.csv", "jitter_s": "3s"}, "workload.jitter_s: '3s' given"),
}


@pytest.mark.parametrize("name", SETTINGS)
def test_a_bad_setting_gets_one_line(name: str, write: Any, opened: Any) -> None:
    write(CSV + "0,1,1\n", "trace.csv")
    write(CSV + "99999,1,1\n", "late.csv")
    config, expected = SETTINGS[name]
    with pytest.raises(WorkloadError, match=expected):
        list(opened(**config).batches(100))


@pytest.mark.parametrize("config", [None, [], "trace.csv"])
def test_a_workload_that_is_no_mapping(config: Any, tmp_path: Path) -> None:
    with pytest.raises(WorkloadError, match="workload: expected a mapping of trace, format"):
        open_workload(config, tmp_path, 0)


@pytest.mark.parametrize("seed", [-1, 1.5, True, 1 << 64])
def test_a_seed_out_of_range(seed: Any, tmp_path: Path) -> None:
    with pytest.raises(WorkloadError, match=r"seed: .* given; allowed: whole numbers from 0"):
        open_workload({"trace": "t"}, tmp_path, seed)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read any file")
def test_a_trace_that_may_not_be_read(write: Callable[..., Path], opened: Any) -> None:
    write(CSV).chmod(0)
    with pytest.raises(WorkloadError, match="cannot read the trace: Permission denied"):
        opened(trace="trace.txt")
