"""What a step costs: the closed forms against counting pair by pair."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sim.core.make_state import make_queues
from sim.core.output import S_END, S_START
from sim.core.price import ADDITIVE, Price, attended_pairs, price_batch, read_tokens
from sim.core.state import BATCH_REQUESTS, COMPUTED, E_SLOT, E_TOKENS, REQUEST_FIELDS
from sim.machine import Machine
from sim.step_time import NO_GRID, constant_price
from tests.twin.ours import arrivals, core_plan
from tests.twin.settings import Settings, ask


@given(st.integers(0, 60), st.integers(1, 40), st.integers(0, 30))
def test_pairs_are_counted(start: int, tokens: int, window: int) -> None:
    """Token number p sees itself and what is before it, at most ``window`` tokens."""
    seen = [min(p + 1, window) if window else p + 1 for p in range(start, start + tokens)]
    assert attended_pairs(start, tokens, window) == sum(seen)


@given(st.integers(0, 60), st.integers(1, 40), st.integers(0, 30))
def test_tokens_read_are_counted(start: int, tokens: int, window: int) -> None:
    """What any token of the chunk sees is read once."""
    seen = {q for p in range(start, start + tokens) for q in range(p + 1) if not window or q > p - window}
    assert read_tokens(start, tokens, window) == len(seen)


def price(**changed: Any) -> Price:
    """A dense model with one full and one window-4 kind of layer; costs easy to add up in the head."""
    values: dict[str, Any] = {
        "kind": ADDITIVE,
        "fixed_ns": 1000.0,
        "token_ns": 10.0,
        "request_ns": 100.0,
        "expert_ns": 0.0,
        "experts": 0.0,
        "experts_per_token": 0.0,
        "window": np.array([0, 4], np.int64),
        "pair_ns": np.array([1.0, 2.0]),
        "read_ns": np.array([0.5, 0.25]),
        "grid": NO_GRID,
    }
    return Price(**{**values, **changed})


def cost(costs: Price, *batch: tuple[int, int]) -> int:
    """Price of a batch of (computed before, new tokens)."""
    queues = make_queues(core_plan(Settings()), 16, 2)
    requests = np.zeros((16, REQUEST_FIELDS), np.int64)
    for slot, (start, new) in enumerate(batch):
        requests[slot, COMPUTED] = start + new
        queues.entries[0, slot, [E_SLOT, E_TOKENS]] = slot, new
    queues.batch[0, BATCH_REQUESTS] = len(batch)
    return int(price_batch(costs, requests, queues, 0, sum(new for _, new in batch)))


def test_a_constant_step_costs_the_same_whatever_it_does() -> None:
    assert cost(constant_price(70), (0, 3)) == cost(constant_price(70), (9, 1), (0, 40)) == 70


def test_costs_add_up() -> None:
    """Prompt of 3: 6 pairs, 3 read in both kinds. Decode at 9: 10 pairs and reads, 4 in the window."""
    prompt = 1000 + 30 + 100 + 6 * 1.0 + 6 * 2.0 + 3 * 0.5 + 3 * 0.25
    decode = 10 + 100 + 10 * 1.0 + 4 * 2.0 + 10 * 0.5 + 4 * 0.25
    assert cost(price(), (0, 3)) == round(prompt)
    assert cost(price(), (0, 3), (9, 1)) == round(prompt + decode)


def test_the_machine_charges_what_a_batch_costs() -> None:
    """A prompt of 8, then a decode at 8, priced as those two batches."""
    machine = Machine(core_plan(Settings()), price(), 20)
    machine.submit(arrivals([ask("a", 0, [(1, 8)], 2)]))
    machine.advance()
    starts, ends = machine.state.output.steps[:2, [S_START, S_END]].T.tolist()
    assert [end - start for start, end in zip(starts, ends, strict=True)] == [
        cost(price(), (0, 8)),
        cost(price(), (8, 1)),
    ]


@pytest.mark.parametrize(("tokens", "touched"), [(1, 2 / 8), (2, 1 - 0.75**2), (64, 1 - 0.75**64)])
def test_experts_are_read_as_far_as_tokens_reach_them(tokens: int, touched: float) -> None:
    """Of 8 experts a token uses 2: the share that is read is 1 - (1 - 2/8)^tokens."""
    base = price(pair_ns=np.zeros(2), read_ns=np.zeros(2))
    with_experts = base._replace(expert_ns=1e6, experts=8.0, experts_per_token=2.0)
    assert cost(with_experts, (0, tokens)) - cost(base, (0, tokens)) == round(1e6 * touched)
