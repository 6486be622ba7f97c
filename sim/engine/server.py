"""One replica's server: a process that runs the compiled core from outside event to outside event.

Between two outside events the core runs alone, up to the horizon: the time of the next outside event. Where somebody
waits for answers it stops at every answer besides. Whoever reads the machine's state is an outside event too.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any

import numpy as np
import simpy
from numpy.typing import NDArray

from sim.core.advance import FAILED, FINISHED_SOME, HORIZON, RECORDS_FULL, STALLED, STEPPED
from sim.core.output import F_ORDINAL, FINISH_ROWS, FINISHED_COUNT, OUTPUT_COUNT, PREEMPTION_COUNT
from sim.core.state import FAILURE, NEVER
from sim.engine.traffic import Traffic
from sim.errors import StallError
from sim.explanation import Explanation
from sim.machine import Machine
from sim.records import Records
from sim.vllm_failures import vllm_failure

FUTILE_STEPS = 50_000
"""Steps with preemptions and without a single output, in a row, after which requests are taken to starve each other."""

LATE = simpy.events.EventPriority(2)
"""After everything else that happens at the same time: an arrival at t precedes a schedule at t."""

Observer = Callable[[Machine], None]


class Server:
    """One replica: its machine, and what is kept of its run. See `sim.engine.Engine` for the observers.

    ``answered`` is told which requests have finished.
    """

    def __init__(
        self,
        env: simpy.Environment,
        machine: Machine,
        traffic: Traffic,
        *,
        on_step: Observer | None = None,
        on_drain: Observer | None = None,
    ) -> None:
        self.machine = machine
        self.records = Records()
        self.explanation = Explanation(machine.plan.block_size.size, machine.plan.hash_lookahead)
        self._env = env
        self._traffic = traffic
        self.answered: Callable[[NDArray[np.int64]], None] = traffic.answered
        self._on_step = on_step
        self._on_drain = on_drain
        self._announced = 0
        self._last_output = (0, 0, 0)

    def serve(self) -> Generator[simpy.Event, Any, None]:
        """Run the machine from outside event to outside event until neither has anything left."""
        while True:
            self._traffic.send()
            upcoming = self._env.peek()
            horizon = NEVER if upcoming == float("inf") else int(upcoming)
            reason = self.machine.advance(
                horizon, one_step=self._on_step is not None, stop_on_finish=self._traffic.awaits_answers
            )
            if reason == STEPPED and self._on_step is not None:
                self._on_step(self.machine)
            elif reason == FAILED:
                raise vllm_failure(int(self.machine.state.queues.counters[FAILURE]), self.machine.num_steps)
            elif reason == FINISHED_SOME:
                yield AfterAll(self._env, self.machine.now_ns)
                self.announce()
                yield AfterAll(self._env, self.machine.now_ns)
            elif reason == RECORDS_FULL:
                self.drain()
                self._check_progress()
            elif horizon < NEVER:  # idle or stalled until then, or busy
                self.drain()
                yield AfterAll(self._env, horizon)
            elif reason == STALLED:
                self.drain()
                self.stalled()
            else:
                self.drain()
                self.check_clock(reason)
                return

    def announce(self) -> None:
        """Tell those who wait for answers which requests have finished since the last time."""
        output = self.machine.state.output
        rows = int(output.counters[FINISH_ROWS])
        self.answered(output.finished[self._announced : rows, F_ORDINAL])
        self._announced = rows

    def run_to(self, horizon_ns: int) -> int:
        """Run up to a horizon, finishes and all; returns why the machine stopped there."""
        while (reason := self.machine.advance(horizon_ns)) == RECORDS_FULL:
            self.drain()
            self._check_progress()
        return reason

    def stalled(self) -> None:
        """Raise StallError: requests are left, nothing is in flight and nothing will arrive."""
        raise StallError(self._stall_message("nothing in flight and no arrival left"))

    def check_clock(self, reason: int) -> None:
        """Raise StallError when the machine ended with the clock and not with its work."""
        if reason == HORIZON:
            years = NEVER / 1e9 / 86_400 / 365
            raise StallError(
                f"the clock ends after {years:.0f} years, with {self.machine.num_waiting} requests waiting and"
                f" {self.machine.num_running} running; give shorter step times (step_time)"
            )

    def drain(self) -> None:
        """Take over the machine's records."""
        self.announce()
        self.records.drain(self.machine.state.output)
        self._announced = 0
        self.explanation.drain(self.machine.state.seen)
        if self._on_drain is not None:
            self._on_drain(self.machine)

    def _check_progress(self) -> None:
        """Raise StallError when requests only take each other's blocks: vLLM would go on like that for ever."""
        counters = self.machine.state.output.counters
        outputs, preemptions, step = self._last_output
        if counters[OUTPUT_COUNT] != outputs or counters[PREEMPTION_COUNT] == preemptions:
            self._last_output = (int(counters[OUTPUT_COUNT]), int(counters[PREEMPTION_COUNT]), self.machine.num_steps)
        elif self.machine.num_steps - step > FUTILE_STEPS:
            raise StallError(
                self._stall_message(f"requests preempt each other and none has got a token for {FUTILE_STEPS} steps")
            )

    def _stall_message(self, why: str) -> str:
        machine = self.machine
        finished = int(machine.state.output.counters[FINISHED_COUNT])
        return (
            f"the simulation stalled at {machine.now_ns / 1e9:.3f} s: {why}; {machine.num_waiting} waiting, "
            f"{machine.num_running} running, {finished} finished; {machine.stall_reason(self._traffic.ids)}; "
            "give it more blocks or a smaller max_num_seqs"
        )


class AfterAll(simpy.Event):
    """A moment in time at which everything else that is due by then has happened."""

    def __init__(self, env: simpy.Environment, time_ns: int) -> None:
        super().__init__(env)
        self._ok, self._value = True, None
        env.schedule(self, LATE, time_ns - int(env.now))
