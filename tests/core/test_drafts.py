"""Drafts: scheduled with the next token, accepted as given, rolled back where rejected."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from sim.core.drafts import num_accepted
from sim.core.hashing import draw, first_word
from sim.engine_config import EngineConfig, joint_rates
from sim.machine import DRAWN
from tests.core.layers_run import asked, full, run, state, steps

NGRAM: dict[str, Any] = {"speculative_method": "ngram", "num_speculative_tokens": 3}
ALL: dict[str, Any] = {**NGRAM, "acceptance_rate": 1}
NONE: dict[str, Any] = {**NGRAM, "acceptance_rate": 0}


def scheduled(log: list[dict[str, Any]]) -> list[list[list[Any]]]:
    """Who was scheduled with how many tokens, step by step."""
    return [step["scheduled"] for step in steps(log)]


@pytest.mark.parametrize("ahead", [False, True])
def test_accepted_drafts_give_as_many_outputs_a_step(ahead: bool) -> None:
    """Output 1 comes with the prompt, then four a step: 1 + 4 + 4."""
    log = run([full()], [asked("a", [["x", 4]], 9)], async_scheduling=ahead, **ALL)
    assert scheduled(log)[:3] == [[["a", 4]], [["a", 4]], [["a", 4]]]
    assert len(steps(log)) == (4 if ahead else 3)  # one more was under way when the ninth came


def test_rejected_drafts_are_scheduled_and_computed_again() -> None:
    """One output a step; the second block is taken once, for tokens that are rejected, and kept."""
    log = run([full()], [asked("a", [["x", 4]], 4)], **NONE)
    assert scheduled(log) == [[["a", 4]]] * 4
    assert [step["new_blocks"] for step in steps(log)] == [[["a", [[1]]]], [["a", [[2]]]], [["a", [[3]]]], []]


def test_an_end_among_accepted_drafts_cuts_off_the_rest() -> None:
    """The sixth output is the last: by max_tokens, or said; three more were sampled with it."""
    said = asked("a", [["x", 4]], 6) | {"max_tokens": 9}
    for request in (asked("a", [["x", 4]], 6), said):
        log = run([full()], [request], **ALL)
        assert scheduled(log) == [[["a", 4]], [["a", 4]], [["a", 4]]]


def test_drafts_are_cut_to_the_budget_and_to_max_model_len() -> None:
    """a and b decode with four tokens each in a budget of six; of 12 tokens the last is never an input."""
    two = [asked("a", [["x", 2]], 3), asked("b", [["y", 2]], 3)]
    assert scheduled(run([full()], two, max_num_batched_tokens=6, max_num_seqs=6, **NONE))[1] == [["a", 4], ["b", 2]]
    long = run([full()], [asked("a", [["x", 8]], 4)], max_model_len=12, **NONE)
    assert [tokens for step in scheduled(long) for _, tokens in step] == [8, 3, 2, 1]


def test_a_draft_model_takes_slots_and_a_token_of_the_budget() -> None:
    """Slots for two drafts beyond the nine tokens scheduled, which are not ten: one of the budget is the draft's."""
    model: dict[str, Any] = {"speculative_method": "draft_model", "num_speculative_tokens": 2, "acceptance_rate": 0}
    log = steps(run([full()], [asked("a", [["x", 12]], 1)], max_num_batched_tokens=10, **model))
    assert [step["scheduled"] for step in log] == [[["a", 9]], [["a", 3]]]
    assert [step["new_blocks"] for step in log] == [[["a", [[1, 2, 3]]]], [["a", [[4]]]]]


def test_a_request_with_one_token_left_enters_as_wide_as_the_others() -> None:
    """b resends a's prompt but its last token: a hit of 8, one token and three places that nobody drafted for."""
    asks = [asked("a", [["x", 8], ["y", 4]], 4), asked("b", [["x", 8], ["z", 1]], 2, arrival_ns=1)]
    log = steps(run([full()], asks, **ALL))
    assert [(step["scheduled"], step["hits"]) for step in log[:3]] == [
        ([["a", 12]], [["a", 0]]),
        ([["a", 4], ["b", 4]], [["b", 8]]),
        ([["b", 4]], []),  # padding was not accepted: b has one output, as after any prompt
    ]


def test_what_is_accepted_does_not_depend_on_who_else_runs() -> None:
    """b has the same steps to itself and beside a, in the same block-free machine: a draw is the request's own."""
    flags = {**NGRAM, "acceptance_rate": 0.6}
    a, b = asked("a", [["x", 3]], 40), asked("b", [["y", 5]], 30)
    log = scheduled(run([full()], [a, b], **flags))
    of_b = [tokens for step in log for name, tokens in step if name == "b"]
    unused = a | {"output_tokens": 1, "max_tokens": 1}
    alone = scheduled(run([full()], [unused, b], **flags))
    assert [tokens for step in alone for name, tokens in step if name == "b"] == of_b
    assert 8 < len(of_b) < 30


def test_draws_are_uniform_and_reproducible() -> None:
    """Half of the draws lie below half; the first ones are these, on any machine."""
    first = np.uint64(first_word(np.uint64(1)))
    words = [int(draw(first, np.uint64(2), np.uint64(outputs))) for outputs in range(4000)]
    assert words[:2] == [8025929006252521, 5059701929505441]
    assert 0.47 < sum(word < DRAWN // 2 for word in words) / len(words) < 0.53


@pytest.mark.parametrize(
    ("given", "mean"),
    [
        ({"acceptance_rate": 0.5}, 1 + 0.5 + 0.25 + 0.125),
        ({"synthetic_acceptance_rates": (0.8, 0.6, 0.3)}, 1 + 0.8 + 0.6 + 0.3),
        ({"synthetic_acceptance_length": 2.5}, 2.5),
    ],
)
def test_rates_mean_what_vllm_means_by_them(given: dict[str, Any], mean: float) -> None:
    """The mean acceptance length is one and all rates: each is how often the drafts up to there are accepted."""
    flags: dict[str, Any] = {"max_model_len": 64, "max_num_batched_tokens": 64, "max_num_seqs": 8, **NGRAM, **given}
    rates = np.round(np.array(joint_rates(EngineConfig(**flags))) * DRAWN).astype(np.int64)
    first = np.uint64(first_word(np.uint64(5)))
    draws = [int(draw(first, np.uint64(0), np.uint64(outputs))) for outputs in range(4000)]
    lengths = [1 + num_accepted(rates, drawn, 3) for drawn in draws]
    assert sum(lengths) / len(lengths) == pytest.approx(mean, abs=0.06)


def test_states_of_drafts_move_on_with_the_running_state() -> None:
    """One state runs, two are for drafts; when the text reaches the next block, one of those becomes its state."""
    layers = [full(), state("align", num_speculative_blocks=2)]
    two: dict[str, Any] = {"speculative_method": "ngram", "num_speculative_tokens": 2, "acceptance_rate": 0}
    log = steps(run(layers, [asked("a", [["x", 6]], 6)], **two))
    assert [step["tables"][0][1] for step in log] == [
        [2, 3, 4],  # state of tokens 0 … 3, and two for drafts
        [2, 3, 4, 6],  # tokens 4 and 5: the first place for drafts now is the running state's
        [0, 3, 4, 6, 8],  # a token and two drafts end in the third block; the second state is kept until they are known
        [0, 3, 4, 6, 8],
        [0, 3, 4, 6, 8],
        [0, 0, 4, 6, 8],
        [0, 0, 4, 6, 8, 9],
    ]
