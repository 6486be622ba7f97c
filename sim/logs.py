"""The logs a run may write while it goes: every scheduling step, and every KV cache event."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple, TextIO

from sim.kv_events import KVEvents
from sim.machine import Machine
from sim.planning import KVCachePlan
from sim.step_log import StepLog, write_entry
from sim.story import Watcher


class LogStreams(NamedTuple):
    """Where logs go, None: nowhere; who else watches; and the number of the replica, None where it is alone."""

    step_log: TextIO | None = None
    kv_events: TextIO | None = None
    replica: int | None = None
    watchers: Sequence[Watcher] = ()


class Logs:
    """Writes one JSON object a line; ``ids`` are those of the engine's requests.

    Where there are several replicas, each line names its own, and those of one come after those of the other.
    """

    def __init__(self, plan: KVCachePlan, streams: LogStreams) -> None:
        self.ids: list[str] = []
        self._step_log, self._kv_events, self._replica, self._watchers = streams
        self._steps = StepLog(lambda ordinal: self.ids[ordinal])
        self._events = KVEvents(lambda ordinal: self.ids[ordinal], plan.groups)

    @property
    def wanted(self) -> bool:
        """Whether anyone wants to see every step, so that the machine has to stop after it."""
        return self._step_log is not None or self._kv_events is not None or bool(self._watchers)

    def write_step(self, machine: Machine) -> None:
        """Write what happened since the last call, the step just scheduled included."""
        if self._step_log is not None:
            self._write(self._step_log, self._steps.entries(machine))
        for watcher in self._watchers:
            watcher.see(machine, self.ids)
        self._write_events(machine)

    def write_rest(self, machine: Machine) -> None:
        """Write what happened after the last step."""
        if self._step_log is not None:
            self._write(self._step_log, self._steps.finished(machine))
        self._write_events(machine)

    def _write_events(self, machine: Machine) -> None:
        if self._kv_events is not None:
            self._write(self._kv_events, self._events.entries(machine))

    def _write(self, stream: TextIO, entries: Iterable[dict[str, Any]]) -> None:
        for entry in entries:
            write_entry(stream, entry if self._replica is None else {"replica": self._replica, **entry})
