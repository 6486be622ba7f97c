"""The shipped excerpts: small, readable, of known origin, and what their README says they are."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from workloads import sample_names, sample_path
from workloads.samples import FOLDER
from workloads.samples.build import build

README = (FOLDER / "README.md").read_text(encoding="utf-8")
SIZES = {"agentic-sessions": 187, "azure-code-2023": 2_000, "azure-conv-2023": 2_000, "mooncake-conversation": 2_500}


def test_the_names_are_these() -> None:
    assert sample_names() == sorted(SIZES)


@pytest.mark.parametrize("name", SIZES)
def test_a_sample_is_small_and_its_origin_and_licence_are_told(name: str, read: Any, opened: Any) -> None:
    assert sample_path(name).stat().st_size <= 200_000
    line = next(line for line in README.splitlines() if line.startswith(f"| `{name}`"))
    licence = line.rpartition("`LICENSE")[2].partition("`")[0]
    assert (FOLDER / f"LICENSE{licence}").stat().st_size > 10_000
    assert f"{SIZES[name]:,}" in line
    assert len(read(trace=f"sample:{name}")) == SIZES[name]
    workload = opened(trace=f"sample:{name}")
    assert (workload.name, workload.describe()["source"]) == (name, f"sample:{name}")
    assert workload.expected_requests == SIZES[name]


@pytest.mark.parametrize("name", SIZES)
def test_different_texts_have_different_names(name: str, read: Any) -> None:
    """Every output is private; a span of the prompt either repeats an earlier one or is new."""
    batch = read(trace=f"sample:{name}")
    last = batch.span_offsets[1:] - 1
    assert len(np.unique(batch.span_content[last])) == len(batch)
    prompts = np.delete(batch.span_content, last)
    assert not np.isin(prompts, batch.span_content[last]).any()


def test_mooncake_arrives_on_ticks_and_says_so(opened: Any, read: Any) -> None:
    workload = opened(trace="sample:mooncake-conversation")
    list(workload.batches(1_000))
    assert workload.describe()["same_time_as_before"] > 2_000
    batch = read(trace="sample:mooncake-conversation", jitter_s=3)
    assert (np.diff(batch.arrival_ns) == 0).sum() == 0


def test_the_agentic_sessions_repeat_their_contexts(read: Any) -> None:
    """An endless cache of 16-token blocks would hit the share the README states."""
    batch = read(trace="sample:agentic-sessions")
    seen: set[tuple[Any, ...]] = set()
    hits = 0
    for i in range(len(batch)):
        start = batch.span_offsets[i]
        before: tuple[Any, ...] = ()
        alive = True
        for j in range(start, start + batch.prompt_spans[i]):
            text, tokens = int(batch.span_content[j]), int(batch.span_tokens[j])
            for block in range(tokens // 16):
                key = (hash(before), text, block)
                alive = alive and key in seen
                hits += 16 * alive
                seen.add(key)
            before = (hash(before), text, tokens)
    assert batch.prompt_tokens.max() == 110_524
    assert round(100 * hits / batch.prompt_tokens.sum(), 1) == 92.6


def test_the_samples_are_made_from_the_originals(shared_data: Path, tmp_path: Path) -> None:
    build(shared_data / "traces", tmp_path)
    for name in SIZES:
        path = sample_path(name)
        assert gzip.decompress((tmp_path / path.name).read_bytes()) == gzip.decompress(path.read_bytes())
