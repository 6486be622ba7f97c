"""``max_num_seqs`` against a pool with states: vLLM's refusal, and how many can run at most."""

from __future__ import annotations

import pytest

from sim.planning import most_running, seqs_warning
from sim.specs import FullAttentionSpec, SlidingWindowSpec, Spec
from tests.core.layers_run import asked, full, planned, run, state, steps

PREFIX = {"max_num_batched_tokens": 512, "max_model_len": 64}


@pytest.mark.parametrize(("seqs", "says"), [(512, "at most 100"), (101, "at most 100"), (100, "49"), (50, "49")])
def test_more_than_the_pool_holds_is_said(seqs: int, says: str) -> None:
    warning = seqs_warning(*planned([full(), state("align")], 100, max_num_seqs=seqs, **PREFIX))
    assert warning is not None
    assert says in warning
    assert ("vLLM refuses" in warning) == (seqs > 100)


def test_what_fits_is_not_warned_about() -> None:
    assert seqs_warning(*planned([full(), state("align")], 100, max_num_seqs=49, **PREFIX)) is None


def test_without_states_nothing_is_said() -> None:
    window = SlidingWindowSpec(4, 1, 8, "bfloat16", sliding_window=8)
    sets: list[list[Spec]] = [[full()], [full(), window], [FullAttentionSpec(8, 1, 8, "bfloat16")]]
    for layers in sets:
        assert seqs_warning(*planned(layers, 100, max_num_seqs=500, **PREFIX)) is None


@pytest.mark.parametrize("mode", ["align", "none"])
def test_as_many_run_as_it_says_and_no_more(mode: str) -> None:
    """20 requests of one token and one output, all at once: nine hold the 19 blocks there are to have."""
    layers = [full(), state(mode)]
    flags = {"enable_prefix_caching": mode == "align", "max_num_seqs": 20}
    most = most_running(*planned(layers, 20, **flags))
    log = run(layers, [asked(f"r{i:02}", [[f"x{i}", 1]], 2) for i in range(20)], 20, **flags)
    assert most == 9
    assert max(len(step["tables"]) for step in steps(log)) == most
