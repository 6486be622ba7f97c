"""Where vLLM's own scheduler fails on the way: the run ends in the same step, with a line that says what to change."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.oracle.our_side import our_side

FOUND = Path(__file__).resolve().parent.parent / "oracle" / "found"


@pytest.mark.parametrize(
    ("name", "where", "what"),
    [
        ("padding-cut", "engine.long_prefill_token_threshold: ", "set it to 0 or above num_speculative_tokens"),
        ("state-without-key", "engine.num_speculative_tokens: ", "make fewer drafts than the hash block size"),
        ("look-up-without-key", "engine.num_mtp_modules: ", "set num_mtp_modules to 1, or enable_prefix_caching"),
        ("keyed-twice", "engine.async_scheduling: ", "async_scheduling to true, or prefix_match_unit to the block"),
    ],
)
def test_the_step_the_key_at_fault_and_what_to_do_are_named(name: str, where: str, what: str) -> None:
    lines = list(our_side(json.loads((FOUND / f"fails-{name}.json").read_text())))
    steps = sum("step" in line for line in lines)
    message = lines[-1]["failed"]
    assert message.startswith(f"{where}vLLM's own scheduler fails with these settings, in step {steps + 1}: ")
    assert what in message


@pytest.mark.parametrize("name", ["padding-cut", "state-without-key", "look-up-without-key", "keyed-twice"])
def test_the_same_requests_are_served_once_that_is_done(name: str) -> None:
    case = json.loads((FOUND / f"fails-{name}.json").read_text())
    harmless = {"long_prefill_token_threshold": 0, "num_mtp_modules": 1, "enable_prefix_caching": name == "padding-cut"}
    lines = list(our_side(case | {"config": case["config"] | harmless}))
    assert sum("finished" in line for line in lines) == len(case["requests"])
    assert not any("failed" in line for line in lines)
