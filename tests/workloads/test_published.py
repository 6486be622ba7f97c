"""Published traces, whole: the rows and statistics that are known of each."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.workloads.published import FACTS, FOLDER, Facts, shared
from workloads import RequestBatch, WorkloadError, open_workload
from workloads.batch import concat
from workloads.content import I64


def read(facts: Facts) -> RequestBatch:
    """The whole trace."""
    path = shared(facts.path)
    return concat(list(open_workload({"trace": path.name, **facts.settings}, path.parent, 0).batches(1 << 14)))


def lengths(values: I64) -> tuple[int, ...]:
    """p50, p95, p99 and the largest, rounded."""
    return tuple(np.rint(np.percentile(values, [50, 95, 99, 100])).astype(int).tolist())


@pytest.mark.parametrize("name", FACTS)
def test_rows_and_lengths_are_the_published_ones(name: str) -> None:
    facts = FACTS[name]
    batch = read(facts)
    assert len(batch) == facts.requests
    assert batch.prompt_tokens.mean() == pytest.approx(facts.prompt_mean, abs=0.51)
    assert batch.output_tokens.mean() == pytest.approx(facts.output_mean, abs=0.51)
    assert np.abs(np.subtract(lengths(batch.prompt_tokens), facts.prompt)).max() <= 1
    assert np.abs(np.subtract(lengths(batch.output_tokens), facts.output)).max() <= 1
    if facts.span_s is not None:
        assert (batch.arrival_ns[-1] - batch.arrival_ns[0]) / 1e9 == pytest.approx(facts.span_s, abs=0.051)
    if facts.gap_cv is not None:
        gaps = np.diff(batch.arrival_ns)
        assert gaps.std() / gaps.mean() == pytest.approx(facts.gap_cv, abs=0.006)


def test_a_copy_of_a_session_is_left_out() -> None:
    path = shared("traces/kv_cache_tester")
    workload = open_workload({"trace": str(path), "arrival": {"kind": "all_at_once"}}, path, 0)
    assert sum(len(batch) for batch in workload.batches(1000)) + 36 == 1042
    assert workload.describe()["rows_skipped"] == {"copy_of_another_session": 36}


def small_files() -> list[Path]:
    """Fixtures, excerpts and samples of formats, by path below the folder of published data."""
    folders = ("dynamo_fixtures", "excerpts", "inference_perf_otel", "llmservingsim", "tracelab", "aibrix")
    found = [file for name in folders for file in sorted((FOLDER / "traces" / name).glob("*.*"))]
    return [file for file in found if "LICENSE" not in file.name]


NO_TRACE = {
    "qwen_thinking_blksz_16.jsonl.lfs-pointer": "git-LFS pointer",
    "vllm_meta": "a description of a run, not its requests",
    "vllm_timeseries": "a series of measurements over time",
}


@pytest.mark.parametrize("path", small_files(), ids=lambda path: path.name)
def test_every_file_is_read_or_refused_by_name(path: Path) -> None:
    settings = {"trace": path.name, "chars_per_token": 4, "arrival": {"kind": "poisson", "rate_per_s": 1}}
    reason = next((text for start, text in NO_TRACE.items() if path.name.startswith(start)), None)
    if reason is not None:
        with pytest.raises(WorkloadError, match=reason):
            open_workload(settings, path.parent, 0)
        return
    workload = open_workload(settings, path.parent, 0)
    batch = concat(list(workload.batches(1000)))
    rows = sum(bool(line.strip()) for line in path.read_text(encoding="utf-8").splitlines())
    skipped = sum(workload.describe()["rows_skipped"].values())
    header = path.suffix == ".csv" or "agentic-mooncake" in path.name
    if path.suffix != ".json" and not path.name.startswith("applied"):
        assert len(batch) + skipped == rows - header
    assert len(batch) > 0
