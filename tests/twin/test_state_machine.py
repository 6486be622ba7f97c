"""Hypothesis drives the machine and its twin in lock-step, mixing arrivals and steps, and shrinks what fails."""

from __future__ import annotations

from functools import partial

from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from tests.twin.drawn import Draw, drawn_ask, drawn_settings
from tests.twin.lockstep import LockStep
from tests.twin.settings import Ask, ask

MANY_STEPS = 200


def integer(data: st.DataObject, least: int, most: int) -> int:
    """One integer of Hypothesis' choice."""
    return data.draw(st.integers(least, most))


class MachineAndTwin(RuleBasedStateMachine):
    """Requests come at any moment, alone or together, related to earlier ones or not."""

    both: LockStep
    asks: list[Ask]

    @initialize(data=st.data())
    def build(self, data: st.DataObject) -> None:
        self.both = LockStep(drawn_settings(partial(integer, data)))
        self.asks = []

    @rule(data=st.data(), count=st.integers(1, 4))
    def requests_arrive(self, data: st.DataObject, count: int) -> None:
        draw: Draw = partial(integer, data)
        step_ns = self.both.settings.step_ns
        time = self._next_arrival(draw(-step_ns, 3 * step_ns))
        new = []
        for _ in range(count):
            name = f"r{draw(0, 9)}{len(self.asks)}"
            new.append(drawn_ask(draw, self.both.settings, name, time, self.asks))
            self.asks.append(new[-1])
            time += draw(0, 2) * step_ns
        self.both.submit(new)

    @precondition(lambda self: self.asks)
    @rule(data=st.data())
    def a_request_comes_again(self, data: st.DataObject) -> None:
        before = self.asks[integer(data, 0, len(self.asks) - 1)]
        again = ask(
            f"r{integer(data, 0, 9)}{len(self.asks)}",
            self._next_arrival(0),
            before.prompt,
            said=before.output,
            max_tokens=before.max_tokens,
            salt=before.salt,
        )
        self.asks.append(again)
        self.both.submit([again])

    @rule(count=st.integers(1, 6))
    def steps_pass(self, count: int) -> None:
        for _ in range(count):
            if self.both.step() != "stepped":
                return

    @rule()
    def all_is_served(self) -> None:
        for _ in range(MANY_STEPS):  # requests may take each other's blocks for ever, as with vLLM
            if (reason := self.both.step()) != "stepped":
                assert (len(self.both.twin.finished) == len(self.asks)) == (reason == "idle")
                return

    @invariant()
    def they_agree(self) -> None:
        self.both.check()

    def _next_arrival(self, offset_ns: int) -> int:
        """A time around now, after all arrivals so far: ties are ranked within what is submitted together."""
        last = self.asks[-1].arrival_ns if self.asks else -1
        return max(last + 1, self.both.now_ns + offset_ns)


MachineAndTwin.TestCase.settings = hypothesis_settings(max_examples=400, stateful_step_count=30)
TestMachineAndTwin = MachineAndTwin.TestCase
