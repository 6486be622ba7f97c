"""A trace as a workload: its first requests, jittered, stretched in time, in sorted batches."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from workloads.batch import OPEN_LOOP, RequestBatch
from workloads.columns import MAX_SECONDS
from workloads.content import I64, hash_text
from workloads.detect import detect_format
from workloads.errors import WorkloadError
from workloads.readers import READERS
from workloads.samples import sample_path
from workloads.settings import Settings
from workloads.trace_file import TraceFile
from workloads.workload import Tally, rebatch, reorder

KEYS = ("trace", "format", "limit", "time_scale", "jitter_s")
FORMATS = ("auto", *READERS)
SAMPLE = "sample:"
MAX_JITTER_S = 1e6
MAX_SCALE = 1e6
JITTER_STREAM = hash_text("stream/jitter")


@dataclass(frozen=True, slots=True)
class Retiming:
    """What is done to arrivals: first a uniform jitter in [0, ``jitter_ns``), then every time times ``scale``.

    The jitter is in the trace's own time, so that it keeps filling the same ticks when the trace is sped up. Requests
    of a closed loop move with the first one of their session, and their think times stay.
    """

    jitter_ns: int
    scale: float
    seed: int

    def apply(self, chunks: Iterator[RequestBatch]) -> Iterator[RequestBatch]:
        """The same requests at their new times, sorted again (ties in file order)."""
        if not self.jitter_ns:
            return chunks if self.scale == 1.0 else map(self._stretch, chunks)
        return reorder(self._shift(chunks))

    def _stretch(self, chunk: RequestBatch) -> RequestBatch:
        return replace(chunk, arrival_ns=self.scaled(chunk.arrival_ns))

    def _shift(self, chunks: Iterator[RequestBatch]) -> Iterator[tuple[RequestBatch, int]]:
        rng = np.random.default_rng(np.random.SeedSequence(self.seed, spawn_key=(JITTER_STREAM,)))
        of_session: dict[str | None, int] = {}
        for chunk in chunks:
            shift = np.floor(rng.random(len(chunk)) * self.jitter_ns).astype(np.int64)
            if any(chunk.sessions):
                for i, (session, waits) in enumerate(zip(chunk.sessions, chunk.think_ns > OPEN_LOOP, strict=True)):
                    first = of_session.setdefault(session, int(shift[i]))
                    shift[i] = first if waits else shift[i]
            moved = replace(chunk, arrival_ns=self.scaled(chunk.arrival_ns + shift))
            # Whatever follows in the file arrives no earlier than this chunk's last request did before the jitter.
            yield moved, int(self.scaled(chunk.arrival_ns[-1:])[0])

    def scaled(self, arrival_ns: I64) -> I64:
        """``arrival_ns`` times the scale, to the nearest nanosecond."""
        if self.scale == 1.0:
            return arrival_ns
        times = arrival_ns * self.scale
        if times.max() > MAX_SECONDS * 1e9:
            raise WorkloadError(
                f"time_scale {self.scale:g} moves an arrival beyond 10^9 s; allowed: a smaller one",
                where="workload.time_scale",
            )
        return np.asarray(np.rint(times), dtype=np.int64)


class TraceWorkload:
    """A trace file replayed; opened by `workloads.open_workload`."""

    def __init__(self, name: str, trace: TraceFile, form: str, limit: int | None, retiming: Retiming) -> None:
        self._name = name
        self._trace = trace
        self._format = form
        self._limit = limit
        self._retiming = retiming
        self._tally = Tally(limit)

    @property
    def name(self) -> str:
        """The sample's name or the file's, without its endings."""
        return self._name

    @property
    def expected_requests(self) -> int | None:
        """About how many requests a pass yields: the lines of a small file, at most ``limit``."""
        lines = self._trace.expected_lines
        if lines is None:
            return self._limit
        rows = max(lines - (self._format in ("csv", "azure")), 0)
        return rows if self._limit is None else min(rows, self._limit)

    def batches(self, rows: int) -> Iterator[RequestBatch]:
        """A fresh pass over the trace; see `workloads.workload.Workload`."""
        tally = self._tally = Tally(self._limit)
        yield from rebatch(self._retiming.apply(self._chunks(tally)), rows, tally)

    def describe(self) -> dict[str, Any]:
        """Counts and provenance; complete after a whole pass."""
        return {
            "source": self._trace.label,
            "format": self._format,
            "sha256": self._trace.sha256,
            "limit": self._limit,
            "time_scale": self._retiming.scale,
            "jitter_s": self._retiming.jitter_ns / 1e9,
            "seed": self._retiming.seed,
            **self._tally.summary(),
            "rows_skipped": dict(sorted(self._tally.skipped.items())),
        }

    def _chunks(self, tally: Tally) -> Iterator[RequestBatch]:
        for chunk in READERS[self._format](self._trace, tally):
            if len(chunk):
                tally.read += len(chunk)
                yield chunk
        if not tally.read:
            skipped = ", ".join(f"{count} rows with {reason}" for reason, count in sorted(tally.skipped.items()))
            raise WorkloadError(
                f"the trace holds no request{f' ({skipped} left out)' if skipped else ''}", where=self._trace.label
            )


def open_trace(settings: Settings, base_dir: Path, seed: int) -> TraceWorkload:
    """Open the trace that the settings name; raises `WorkloadError` for a file or a setting that cannot be used."""
    limit = settings.integer("limit", 1, 10**12) if "limit" in settings else None
    retiming = Retiming(
        jitter_ns=round(settings.number("jitter_s", 0, MAX_JITTER_S, 0.0) * 1e9),
        scale=settings.number("time_scale", 0, MAX_SCALE, 1.0, above=True),
        seed=seed,
    )
    form = settings.choice("format", FORMATS, "auto")
    given = settings.text("trace")
    if given.startswith(SAMPLE):
        name = given.removeprefix(SAMPLE)
        trace = TraceFile(sample_path(name), given)
    else:
        name = Path(given).name.partition(".")[0] or "trace"
        trace = TraceFile(base_dir / given, str(base_dir / given))
    return TraceWorkload(name, trace, detect_format(trace) if form == "auto" else form, limit, retiming)
