"""Runs as a trace of events for the Perfetto UI: steps, every request's waiting, prefill and decoding, the pool.

The format is Chrome's JSON trace of events ("Trace Event Format"): ``X`` is a slice on a track, ``b`` and ``e`` open
and close a slice of a request, ``C`` is a counter, ``M`` names a process or a track. Times are microseconds.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any, TextIO

import numpy as np

from sim.report.page.read import Run

Event = dict[str, Any]

_COUNTERS = {"used_blocks": "blocks in use", "running_requests": "running", "waiting_requests": "waiting"}
_PHASES = (
    ("waiting", "arrival_s", "first_scheduled_s"),
    ("prefill", "first_scheduled_s", "first_token_s"),
    ("decode", "first_token_s", "finish_s"),
)
_STEP_ARGUMENTS = ("scheduled_tokens", "prefill_tokens", "scheduled_requests", "preempted_requests", "hit_tokens")
_REQUEST_ARGUMENTS = ("prompt_tokens", "output_tokens", "cached_tokens", "preemptions")


def write_trace(stream: TextIO, runs: Sequence[Run]) -> None:
    """Write the events of ``runs``, each a process of its own, one event a line."""
    stream.write('{"displayTimeUnit":"ms","traceEvents":[\n')
    between = ""
    for process, run in enumerate(runs, 1):
        for event in _events(process, run):
            stream.write(between + json.dumps(event, separators=(",", ":"), ensure_ascii=False))
            between = ",\n"
    stream.write("\n]}\n")


def _events(process: int, run: Run) -> Iterator[Event]:
    yield {"ph": "M", "pid": process, "tid": 0, "name": "process_name", "args": {"name": run.label}}
    yield {"ph": "M", "pid": process, "tid": 1, "name": "thread_name", "args": {"name": "engine steps"}}
    yield from _steps(process, run)
    yield from _requests(process, run)


def _steps(process: int, run: Run) -> Iterator[Event]:
    columns = {name: run.steps[name].tolist() for name in ("step", "start_s", "end_s", *_STEP_ARGUMENTS, *_COUNTERS)}
    for i, number in enumerate(columns["step"]):
        start, end = columns["start_s"][i] * 1e6, columns["end_s"][i] * 1e6
        arguments = {name: columns[name][i] for name in _STEP_ARGUMENTS}
        slice_ = {"name": f"step {number}", "cat": "step", "ts": start, "dur": end - start, "args": arguments}
        yield {"ph": "X", "pid": process, "tid": 1, **slice_}
        for name, shown in _COUNTERS.items():
            yield {"ph": "C", "pid": process, "tid": 0, "name": shown, "ts": start, "args": {shown: columns[name][i]}}


def _requests(process: int, run: Run) -> Iterator[Event]:
    times = ("arrival_s", "first_scheduled_s", "first_token_s", "finish_s")
    columns = {name: run.requests[name].tolist() for name in ("id", *times, *_REQUEST_ARGUMENTS)}
    for i in np.argsort(run.requests["arrival_s"], kind="stable").tolist():
        name = str(columns["id"][i])
        common = {"pid": process, "tid": 2, "cat": "request", "id": i}
        arguments = {key: columns[key][i] for key in _REQUEST_ARGUMENTS}
        yield {"ph": "b", **common, "name": name, "ts": columns["arrival_s"][i] * 1e6, "args": arguments}
        for phase, begin, end in _PHASES:
            if columns[end][i] > columns[begin][i]:
                yield {"ph": "b", **common, "name": phase, "ts": columns[begin][i] * 1e6}
                yield {"ph": "e", **common, "name": phase, "ts": columns[end][i] * 1e6}
        yield {"ph": "e", **common, "name": name, "ts": columns["finish_s"][i] * 1e6}
