"""The logs a run may write while it goes: every scheduling step, and every KV cache event."""

from __future__ import annotations

from typing import TextIO

from sim.kv_events import KVEvents
from sim.machine import Machine
from sim.planning import KVCachePlan
from sim.step_log import StepLog, write_entry


class Logs:
    """Writes to the streams that are given, one JSON object a line; ``ids`` are those of the engine's requests."""

    def __init__(self, plan: KVCachePlan, step_log: TextIO | None, kv_events: TextIO | None) -> None:
        self.ids: list[str] = []
        self._step_log, self._kv_events = step_log, kv_events
        self._steps = StepLog(lambda ordinal: self.ids[ordinal])
        self._events = KVEvents(lambda ordinal: self.ids[ordinal], plan.groups)

    @property
    def wanted(self) -> bool:
        """Whether there is any stream to write to, so that the machine has to stop after every step."""
        return self._step_log is not None or self._kv_events is not None

    def write_step(self, machine: Machine) -> None:
        """Write what happened since the last call, the step just scheduled included."""
        if self._step_log is not None:
            for entry in self._steps.entries(machine):
                write_entry(self._step_log, entry)
        self._write_events(machine)

    def write_rest(self, machine: Machine) -> None:
        """Write what happened after the last step."""
        if self._step_log is not None:
            for entry in self._steps.finished(machine):
                write_entry(self._step_log, entry)
        self._write_events(machine)

    def _write_events(self, machine: Machine) -> None:
        if self._kv_events is not None:
            for entry in self._events.entries(machine):
                write_entry(self._kv_events, entry)
