"""Other releases and other groupings: the newest is the plan itself, older ones print what their logs say."""

from __future__ import annotations

import json
from itertools import pairwise

import pytest

from sim.cli import main
from sim.engine_config import EngineConfig
from sim.errors import RefusalError
from sim.models import load_model, model_names
from sim.planning import KVCachePlan, Memory, plan_kv_cache
from sim.releases import Printed, as_printed, changes_between, other_groupings
from sim.releases.groupings import Grouping
from sim.startup_log.releases import Release

GIVEN = frozenset({"max_model_len"})


def engine_of(name: str) -> EngineConfig:
    """A plain engine with a length the model has."""
    length = min(load_model(name).max_model_len, 16384)
    return EngineConfig(max_model_len=length, max_num_batched_tokens=8192, max_num_seqs=64)


def printed(name: str, engine: EngineConfig, release: Release, pool_bytes: int) -> Printed:
    """What a release prints for a model in a given pool."""
    return as_printed(load_model(name), engine, GIVEN, release, lambda _: (pool_bytes, False))


def planned(name: str, engine: EngineConfig, pool_bytes: int) -> KVCachePlan | None:
    """The plan, None where vLLM refuses."""
    try:
        return plan_kv_cache(load_model(name), engine, Memory(kv_cache_memory_bytes=pool_bytes))
    except RefusalError:
        return None


def test_the_newest_release_prints_what_the_plan_says() -> None:
    compared = 0
    for name in model_names():
        engine, pool = engine_of(name), 200 << 30
        plan = planned(name, engine, pool)
        if plan is not None:
            found = printed(name, engine, (0, 33), pool)
            ours = (len(plan.groups), plan.num_blocks, plan.kv_cache_size_tokens, plan.max_concurrency)
            theirs = (found.num_groups, found.num_blocks, found.tokens, found.max_concurrency)
            assert theirs == ours, name
            compared += 1
    assert compared > 90


def test_a_log_of_an_older_release_is_printed_again(capsys: pytest.CaptureFixture[str]) -> None:
    """vLLM 0.11.2 printed 130,960 tokens for gpt-oss-120b in 8.99 GiB (rounded), 98,304 tokens at most."""
    flags = ["--available-kv-cache-memory-gib", "8.992", "--max-model-len", "98304", "--max-num-batched-tokens", "2048"]
    assert main(["plan", "gpt-oss-120b", *flags, "--vllm", "0.11", "--json"]) == 0
    old, new = json.loads(capsys.readouterr().out)["releases"]
    assert (old["release"], new["release"]) == ("0.11", "0.33")
    assert abs(old["tokens"] - 130_960) <= 16 * 9
    assert old["num_blocks"] == new["num_blocks"]
    assert new["tokens"] > 1.5 * old["tokens"]


def test_between_0_20_and_0_21_the_words_changed_and_the_pool_did_not(capsys: pytest.CaptureFixture[str]) -> None:
    flags = ["--available-kv-cache-memory-gib", "46", "--max-model-len", "32768", "--diff", "0.20", "0.21"]
    assert main(["plan", "gemma-4-31b", *flags]) == 0
    out = capsys.readouterr().out
    assert "The pool did not change" in " ".join(out.split())
    marked = [line.split("  ")[1] for line in out.splitlines() if line.endswith("differs")]
    assert marked == ["GPU KV cache size (tokens)"]


@pytest.mark.parametrize("name", ["llama-3.1-8b", "gemma-3-27b", "qwen3-next-80b-a3b", "deepseek-v3.2"])
def test_reasons_are_given_where_and_only_where_numbers_differ(name: str) -> None:
    model, engine = load_model(name), engine_of(name)
    releases: list[Release] = [(0, minor) for minor in range(10, 34)]
    for older, newer in pairwise(releases):
        utilization: list[float] = []

        def pool(share: float, seen: list[float] = utilization) -> tuple[int, bool]:
            seen.append(share)
            return round(100e9 * share), True

        one, other = (as_printed(model, engine, GIVEN, release, pool) for release in (older, newer))
        numbers = [(p.num_blocks, p.tokens, p.max_concurrency, p.pool_bytes) for p in (one, other)]
        if numbers[0] != numbers[1]:
            assert changes_between(model, older, newer), (older, newer)


def test_groups_of_any_size_hold_all_layers() -> None:
    model, engine = load_model("gemma-3-27b"), engine_of("gemma-3-27b")
    sizes = ["min", "max", "gcd", "per-layer", *map(str, range(1, 53))]
    own, *others = other_groupings(model, engine, 40 << 30, sizes)
    plan = plan_kv_cache(model, engine, Memory(kv_cache_memory_bytes=40 << 30))
    assert (own.num_groups, own.num_blocks, own.tokens) == (7, plan.num_blocks, plan.kv_cache_size_tokens)
    for found in others:
        assert found.num_groups is not None
        assert found.padding_layers is not None
        assert found.num_groups * found.layers_per_group == 62 + found.padding_layers
    assert _named(others, "min").layers_per_group == 10
    assert _named(others, "gcd").padding_layers == _named(others, "per-layer").padding_layers == 0
    assert _named(others, "per-layer").num_groups == 62


def _named(groupings: list[Grouping], label: str) -> Grouping:
    return next(found for found in groupings if found.label == label)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--vllm", "0.9"], "--vllm: got '0.9'; releases 0.10 to 0.33 are known"),
        (["--diff", "0.20", "new"], "--diff: got 'new'"),
        (["--what-if-group-size", "gdc"], "nearest is gcd"),
        (["--what-if-group-size", "53"], "1 to 52"),
    ],
)
def test_bad_words_are_one_line(words: list[str], says: str, capsys: pytest.CaptureFixture[str]) -> None:
    flags = ["--available-kv-cache-memory-gib", "40", "--max-model-len", "8192"]
    assert main(["plan", "gemma-3-27b", *flags, *words]) == 2
    error = capsys.readouterr().err
    assert says in error
    assert len(error.splitlines()) == 1


def test_a_model_of_one_kind_has_no_other_grouping(capsys: pytest.CaptureFixture[str]) -> None:
    flags = ["--available-kv-cache-memory-gib", "40", "--max-model-len", "8192", "--what-if-group-size", "2"]
    assert main(["plan", "llama-3.1-8b", *flags]) == 2
    assert "there is no other size to try" in capsys.readouterr().err
