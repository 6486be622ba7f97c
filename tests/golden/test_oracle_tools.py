"""The tools of the oracle that need no vLLM: tokens, cases, the shrinker."""

from __future__ import annotations

import doctest
from typing import Any

import pytest

from tests.oracle import case_requests, tokens
from tests.oracle.cases import random_case, session_cases
from tests.oracle.shrink import shrink


@pytest.mark.parametrize("module", [tokens, case_requests], ids=lambda module: module.__name__)
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


def test_cases_hold_what_vllm_takes() -> None:
    for case in [*(random_case(11, index) for index in range(60)), *session_cases(2)]:
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
