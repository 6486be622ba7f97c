"""Why a hit ended where it did beside drafts: what EAGLE's drop takes, to the token, and what adds up in all runs."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sim.core.seen import (
    EAGLE_DROP,
    L_ADMITTED,
    L_GROUP,
    L_HIT,
    L_LOST,
    L_SEEN,
    L_TOKENS,
    NOT_FINAL,
    NUM_CAUSES,
    REPLAY,
    RESET,
    WINDOW_GAP,
)
from sim.specs import SlidingWindowSpec, Spec
from tests.core.drafted_run import lost_rows
from tests.core.explained_run import explained, losses
from tests.core.layers_run import BLOCK, asked, full
from tests.oracle.cases import draft_case

ROOT = Path(__file__).resolve().parents[2]
EAGLE: dict[str, Any] = {"speculative_method": "eagle", "num_speculative_tokens": 2, "acceptance_rate": 0}
DROP: dict[str, Any] = {**EAGLE, "disable_lookahead_block_hashes": True}
MTP: dict[str, Any] = {**EAGLE, "speculative_method": "mtp", "num_speculative_tokens": 3, "num_mtp_modules": 3}
NGRAM: dict[str, Any] = {"speculative_method": "ngram", "num_speculative_tokens": 3, "acceptance_rate": 1}
WINDOW = SlidingWindowSpec(BLOCK, 1, 8, "bfloat16", sliding_window=5, is_draft=True)
"""A layer of the draft model, which looks back on one block of 4."""


def twice(first: list[list[Any]], second: list[list[Any]]) -> list[dict[str, Any]]:
    """b comes long after a has ended."""
    return [asked("a", first, 1), asked("b", second, 1, 1000)]


@pytest.mark.parametrize(("tokens", "hit", "rest"), [(9, 4, 0), (12, 4, 3), (13, 8, 0)])
def test_a_prompt_sent_again_loses_its_last_block(tokens: int, hit: int, rest: int) -> None:
    """Of 13 tokens 12 are cached, three blocks; the last of them may have been computed for another continuation."""
    alignment = {"alignment": rest} if rest else {}
    again = twice([["x", tokens]], [["x", tokens]])
    assert losses([full()], again, **DROP) == {"b": (hit, {"eagle drop": 4, **alignment})}


def test_a_block_that_proves_the_one_before_is_no_loss() -> None:
    """Beside other groups the third block, past the 11 tokens that may hit, proves both before it; of 13, none does."""
    layers: list[Spec] = [full(), WINDOW]
    assert losses(layers, twice([["x", 12]], [["x", 12]]), **DROP) == {"b": (8, {"alignment": 3})}
    assert losses(layers, twice([["x", 13]], [["x", 13]]), prefix_cache_retention_interval=None, **DROP) == {
        "b": (8, {"eagle drop": 4}),
    }


def test_keys_that_look_ahead_lose_nothing_to_the_drop() -> None:
    """Of 12 tokens 11 were seen with the token after them; where b parts from a at token 8, seven were."""
    assert losses([full()], twice([["x", 12]], [["x", 12]]), **EAGLE) == {"b": (8, {"alignment": 3})}
    assert losses([full()], twice([["x", 13]], [["x", 13]]), **EAGLE) == {}
    parted = twice([["x", 8], ["y", 5]], [["x", 8], ["z", 5]])
    assert losses([full()], parted, **EAGLE) == {"b": (4, {"alignment": 3})}


def test_several_modules_look_further_ahead() -> None:
    """Three tokens: of 15 sent again the last three are never hit, and b hits all before them."""
    loop, explanation = explained([full()], twice([["x", 15]], [["x", 15]]), **MTP)
    summary = explanation.summary()
    assert summary is not None
    assert {part: summary["prompts"][part] for part in ("tokens", "hit", "never_seen", "last_tokens")} == {
        "tokens": 30,
        "hit": 12,
        "never_seen": 12,
        "last_tokens": 6,
    }
    assert explanation.request_columns(loop.records.ordinals())["seen_tokens"].tolist() == [0, 12]


def test_what_several_modules_compute_again_gets_no_key() -> None:
    """The last two of 13 tokens would be: so the third block never got a key, and the second is dropped."""
    assert losses([full()], twice([["x", 13]], [["x", 13]]), **MTP, disable_lookahead_block_hashes=True) == {
        "b": (4, {"eagle drop": 4, "never kept: draft modules": (4, 0)}),
    }


def test_accepted_drafts_are_offered_even_by_a_last_step() -> None:
    """Outputs 2 to 5 come in a's last step; its second block, tokens 4 to 7, is full by then, and b hits it."""
    first = {**asked("a", [["x", 4]], 5), "output": [["o", 5]]}
    assert losses([full()], [first, asked("b", [["x", 4], ["o", 5]], 1, 1000)], **NGRAM) == {}


def test_every_admission_of_random_runs_adds_up() -> None:
    """Only dropped blocks are lost to the drop, and no cause is left out that these runs have to offer."""
    total = np.zeros(NUM_CAUSES, np.int64)
    runs = 0
    for index in range(300):
        found = lost_rows(draft_case(14, index), 400)
        if found is None:
            continue
        plan, rows = found
        lost = rows[:, L_LOST:L_GROUP]
        assert (lost >= 0).all()
        assert (rows[:, L_HIT] + lost.sum(1) == rows[:, L_SEEN]).all(), index
        assert (rows[:, L_SEEN] <= rows[:, L_ADMITTED]).all(), index
        assert (rows[:, L_ADMITTED] <= rows[:, L_TOKENS] - 1).all(), index
        assert plan.drops_last_block or not lost[:, EAGLE_DROP].any(), index
        total += (lost > 0).sum(0)
        runs += 1
    assert runs > 200
    assert total[RESET] == 0
    assert np.delete(total, [WINDOW_GAP, RESET, NOT_FINAL, REPLAY]).min() > 50, total.tolist()


def test_the_drop_takes_what_a_look_up_without_it_would_hit_more() -> None:
    """The look-up itself is the witness, in plain Python, where each admission can be looked into."""
    search = os.pathsep.join([*filter(None, sys.path), str(ROOT)])
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-m", "tests.core.undropped_run"],
        env={**os.environ, "NUMBA_DISABLE_JIT": "1", "PYTHONPATH": search},
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, "True True\n"), done.stderr
