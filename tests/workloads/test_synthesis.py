"""A generator fitted to a trace: what it keeps of lengths, load and sharing."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.workloads.conftest import check
from tests.workloads.published import FACTS, shared
from workloads import RequestBatch, open_workload
from workloads.batch import concat
from workloads.stats.summary import describe
from workloads.synthesis import fit, generate
from workloads.synthesis.load import fit_load


def sample(name: str) -> RequestBatch:
    """A shipped excerpt."""
    return concat(list(open_workload({"trace": f"sample:{name}"}, Path(), 0).batches(1 << 20)))


@pytest.mark.parametrize("name", ["mooncake-conversation", "azure-conv-2023", "agentic-sessions"])
def test_a_synthetic_trace_is_like_its_trace(name: str) -> None:
    given = sample(name)
    made = generate(fit(given), len(given), 1.0, 7)
    check(made)
    wanted, found = describe(given, 16), describe(made, 16)
    few = len(given) < 1000
    for key in ("prompt_tokens", "output_tokens"):
        assert found[key]["mean"] == pytest.approx(wanted[key]["mean"], rel=0.2 if few else 0.06)
        assert found[key]["p50"] == pytest.approx(wanted[key]["p50"], rel=0.25 if few else 0.1)
    assert found["arrivals"]["rate_per_s"] == pytest.approx(wanted["arrivals"]["rate_per_s"], rel=1e-3)
    shares = [side["prefix_sharing"]["share"] for side in (wanted, found)]
    assert shares[1] == pytest.approx(shares[0], abs=0.12 if few else 0.04)


def test_the_same_seed_gives_the_same_trace_and_another_another() -> None:
    model = fit(sample("mooncake-conversation"))
    one, same, other = (generate(model, 300, 2.0, seed) for seed in (1, 1, 2))
    assert np.array_equal(one.span_content, same.span_content)
    assert np.array_equal(one.arrival_ns, same.arrival_ns)
    assert not np.array_equal(one.prompt_tokens, other.prompt_tokens)


def test_a_load_keeps_ticks_and_slow_waves() -> None:
    path = shared(FACTS["mooncake conversation"].path)
    given = concat(list(open_workload({"trace": str(path)}, path.parent, 0).batches(1 << 20)))
    load = fit_load(given.arrival_ns)
    assert load.tick_s == pytest.approx(3.0, abs=0.01)
    times = np.sort(np.random.default_rng(0).beta(2, 2, 20_000)) * 3600e9
    wave = fit_load(times.astype(np.int64)).times(20_000, 1.0, 0)
    halves = [np.histogram(values, 8)[0] for values in (times, wave)]
    assert halves[1] == pytest.approx(halves[0], rel=0.1)


def test_a_trace_of_one_request_can_be_fitted() -> None:
    made = generate(fit(sample("azure-code-2023").slice(0, 1)), 5, 1.0, 0)
    assert len(set(made.prompt_tokens.tolist())) == 1
    assert len(made) == 5
