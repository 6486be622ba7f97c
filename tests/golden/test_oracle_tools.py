"""The tools of the oracle that need no vLLM: tokens, cases, the shrinker."""

from __future__ import annotations

import doctest
from typing import Any

import pytest

from tests.oracle import case_layers, case_requests, tokens
from tests.oracle.case_layers import kinds_of, named_layers
from tests.oracle.cases import kind_case, random_case, session_cases, with_extras
from tests.oracle.compare import MUST_RUN
from tests.oracle.difference import Tally
from tests.oracle.shrink import shrink


@pytest.mark.parametrize("module", [tokens, case_requests, case_layers], ids=lambda module: module.__name__)
def test_doctests(module: Any) -> None:
    result = doctest.testmod(module)
    assert result.attempted > 0
    assert result.failed == 0


def test_tokens_of_spans_are_prefixes_of_one_text_and_never_eos() -> None:
    text = tokens.span_tokens("text", 5000)
    assert tokens.spans_tokens([["text", 17], ["other", 3]])[:17] == text[:17]
    assert tokens.span_tokens(7, 100) != tokens.span_tokens("7", 100)
    assert tokens.EOS not in text


def test_a_random_case_depends_on_its_seed_and_number_alone() -> None:
    assert random_case(5, 3) == random_case(5, 3)
    assert random_case(5, 3)["requests"] != random_case(6, 3)["requests"]
    assert kind_case(5, 3) == kind_case(5, 3)
    assert kind_case(5, 3)["requests"] != kind_case(6, 3)["requests"]


def test_cases_hold_what_vllm_takes() -> None:
    random = [make(11, index) for make in (random_case, kind_case) for index in range(60)]
    for case in [*random, *session_cases(2)]:
        config, requests = case["config"], case["requests"]
        assert config["max_num_seqs"] <= config["max_num_batched_tokens"]
        assert config["enable_chunked_prefill"] or config["max_num_batched_tokens"] >= config["max_model_len"]
        assert len({request["id"] for request in requests}) == len(requests)
        for request in requests:
            assert 1 <= request["output_tokens"] <= request["max_tokens"]
            assert all(count >= 1 for _, count in [*request["prompt"], *(request["output"] or [])])
            assert (
                sum(count for _, count in request["output"] or [[0, request["output_tokens"]]])
                == (request["output_tokens"])
            )


def test_every_kind_is_drawn_and_states_are_kept_as_vllm_keeps_them() -> None:
    configs = [kind_case(1, index)["config"] for index in range(100)]
    assert {kind for config in configs for kind in kinds_of(config)} >= set(MUST_RUN)
    for config in configs:
        for entry in named_layers(config):
            if entry["kind"] == "mamba":
                assert entry["mamba_cache_mode"] == ("align" if config["enable_prefix_caching"] else "none")
                assert config["enable_chunked_prefill"] or not config["enable_prefix_caching"]


def test_salts_skipped_look_ups_events_and_resets_are_drawn() -> None:
    cases = [with_extras(random_case, 1, index) for index in range(40)]
    requests = [request for case in cases for request in case["requests"]]
    assert 0 < sum(request["cache_salt"] is not None for request in requests) < len(requests) / 5
    assert 0 < sum(request["skip_cache"] for request in requests) < len(requests) / 5
    assert {bool(case["config"].get("enable_kv_cache_events")) for case in cases} == {False, True}
    assert {running for case in cases for _, running in case.get("resets", [])} == {False, True}


def test_tallies_add_up() -> None:
    total = Tally(cases=1, steps=2)
    total += Tally(cases=1, refused=1)
    total.kinds.update(["mamba align"])
    assert (total.cases, total.steps, total.refused) == (2, 2, 1)
    assert "mamba align 1" in str(total)


def test_shrinking_keeps_states_as_vllm_keeps_them() -> None:
    def fails(case: dict[str, Any]) -> bool:
        return any(entry["kind"] == "mamba" for entry in case["config"]["layers"])

    for mode in ("mamba none", "mamba align"):
        case = next(case for index in range(100) if mode in kinds_of((case := kind_case(1, index))["config"]))
        small = shrink(case | {"requests": case["requests"][:2]}, fails, seconds=2)["config"]
        assert [entry["kind"] for entry in small["layers"]] == ["mamba"]
        assert small["enable_prefix_caching"] == (mode == "mamba align")
        assert mode == "mamba align" or small["layers"][0]["block_size"] == small["max_model_len"]


def test_shrinking_keeps_what_fails_and_little_else() -> None:
    def fails(case: dict[str, Any]) -> bool:
        long = [request for request in case["requests"] if sum(count for _, count in request["prompt"]) >= 5]
        return case["config"]["max_num_seqs"] >= 2 and len(long) >= 2

    case = next(case for index in range(100) if fails(case := random_case(1, index)))
    small = shrink(case, fails, seconds=30)
    assert fails(small)
    assert [sum(count for _, count in request["prompt"]) for request in small["requests"]] == [5, 5]
    assert small["config"]["max_num_seqs"] == 2
    assert small["config"]["pipeline_parallel_size"] == 1
    assert len(small["config"]["layers"]) == 1
