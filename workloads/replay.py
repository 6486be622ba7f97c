"""A trace as a workload: its first requests, jittered, stretched in time, in sorted batches."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from workloads.arrivals import Arrivals
from workloads.batch import OPEN_LOOP, RequestBatch
from workloads.columns import MAX_SECONDS
from workloads.content import I64, hash_text
from workloads.detect import detect_format
from workloads.errors import WorkloadError
from workloads.options import OPTION_KEYS, ReadOptions
from workloads.placement import Placement, unplaced
from workloads.readers import FORMATS
from workloads.samples import sample_path
from workloads.settings import Settings
from workloads.trace_file import TraceFile
from workloads.workload import Tally, rebatch, reorder

KEYS = ("trace", "format", "limit", "time_scale", "jitter_s", "arrival", "closed_loop", *OPTION_KEYS)
FORMAT_NAMES = ("auto", *FORMATS)
RAGPULSE = "0_trace.jsonl"
FOLDER_ENDINGS = (".json", ".jsonl", ".json.gz", ".jsonl.gz")
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
    """A trace replayed; opened by `workloads.open_workload`."""

    def __init__(
        self,
        name: str,
        sources: list[TraceFile],
        form: str,
        limit: int | None,
        placement: Placement,
        retiming: Retiming,
    ) -> None:
        self._name = name
        self._sources = sources
        self._format = form
        self._limit = limit
        self._placement = placement
        self._retiming = retiming
        self._options = ReadOptions()
        self._tally = Tally(limit)

    def reading(self, options: ReadOptions) -> TraceWorkload:
        """The same trace read with these options."""
        self._options = options
        return self

    @property
    def name(self) -> str:
        """The sample's name or the file's, without its endings."""
        return self._name

    @property
    def expected_requests(self) -> int | None:
        """About how many requests a pass yields: the lines of a small file that has one each, at most ``limit``."""
        lines = self._sources[0].expected_lines
        if FORMATS[self._format].whole or lines is None:
            return self._limit
        header = not self._sources[0].parquet and not self._sources[0].first_line[1].startswith("{")
        rows = max(lines - header, 0)
        return rows if self._limit is None else min(rows, self._limit)

    def batches(self, rows: int) -> Iterator[RequestBatch]:
        """A fresh pass over the trace; see `workloads.workload.Workload`."""
        tally = self._tally = Tally(self._limit)
        yield from rebatch(self._retiming.apply(self._chunks(tally)), rows, tally)

    def describe(self) -> dict[str, Any]:
        """Counts and provenance; complete after a whole pass."""
        source = self._sources[0]
        several = len(self._sources) > 1
        return {
            "source": str(Path(source.label).parent) if several else source.label,
            **({"files": len(self._sources)} if several else {}),
            "format": self._format,
            "sha256": None if several else source.sha256,
            "limit": self._limit,
            "time_scale": self._retiming.scale,
            "jitter_s": self._retiming.jitter_ns / 1e9,
            "seed": self._retiming.seed,
            **self._tally.summary(),
        }

    def _chunks(self, tally: Tally) -> Iterator[RequestBatch]:
        if FORMATS[self._format].whole or self._placement.needed:
            tally.limit = None
            whole = self._placement.apply(self._read(tally), tally, self._limit, self._sources[0].label)
            chunks = iter([]) if whole is None else iter([whole])
        else:
            chunks = self._read(tally)
        for chunk in chunks:
            yield self._placed(chunk, tally)
        if not tally.read:
            skipped = ", ".join(f"{count} rows with {reason}" for reason, count in sorted(tally.skipped.items()))
            raise WorkloadError(
                f"the trace holds no request{f' ({skipped} left out)' if skipped else ''}", where=self._sources[0].label
            )

    def _read(self, tally: Tally) -> Iterator[RequestBatch]:
        """The requests of all files as their reader yields them."""
        for source in self._sources:
            for chunk in FORMATS[self._format].read(source, tally, self._options):
                if len(chunk):
                    tally.read += len(chunk)
                    yield chunk

    def _placed(self, chunk: RequestBatch, tally: Tally) -> RequestBatch:
        """A streamed chunk, unless its trace has no times."""
        if tally.unplaced and not self._placement.needed:
            raise unplaced(tally.unplaced, self._sources[0].label)
        return chunk


def open_trace(settings: Settings, base_dir: Path, seed: int) -> TraceWorkload:
    """Open the trace that the settings name; raises `WorkloadError` for a file or a setting that cannot be used."""
    limit = settings.integer("limit", 1, 10**12) if "limit" in settings else None
    retiming = Retiming(
        jitter_ns=round(settings.number("jitter_s", 0, MAX_JITTER_S, 0.0) * 1e9),
        scale=settings.number("time_scale", 0, MAX_SCALE, 1.0, above=True),
        seed=seed,
    )
    placement = Placement(
        Arrivals.from_settings(settings) if "arrival" in settings else None,
        settings.boolean("closed_loop", default=False) if "closed_loop" in settings else None,
        seed,
    )
    options = ReadOptions.from_settings(settings)
    form = settings.choice("format", FORMAT_NAMES, "auto")
    name, sources = files(settings.text("trace"), base_dir)
    if form == "auto":
        form = detect_format(sources[0], options)
    if len(sources) > 1 and not FORMATS[form].folder:
        raise WorkloadError(
            f"a folder of {len(sources)} files of the format {form!r}, of which each is a trace; give one of them",
            where=str(sources[0].path.parent),
        )
    return TraceWorkload(name, sources, form, limit, placement, retiming).reading(options)


def is_folder(path: Path) -> bool:
    """Whether a path is a folder; one that cannot be looked at is none."""
    try:
        return path.is_dir()
    except (OSError, ValueError):
        return False


def files(given: str, base_dir: Path) -> tuple[str, list[TraceFile]]:
    """The name of a trace and its files: one, or those of a folder (of RAGPulse's, the trace among them)."""
    if given.startswith(SAMPLE):
        name = given.removeprefix(SAMPLE)
        return name, [TraceFile(sample_path(name), given)]
    path = base_dir / given
    name = path.name.partition(".")[0] or "trace"
    if not is_folder(path):
        return name, [TraceFile(path, str(path))]
    if (path / RAGPULSE).is_file():
        return name, [TraceFile(path / RAGPULSE, str(path / RAGPULSE))]
    inside = sorted(file for file in path.iterdir() if file.is_file() and file.name.endswith(FOLDER_ENDINGS))
    if not inside:
        raise WorkloadError(
            f"the trace is a folder without trace files ({', '.join(FOLDER_ENDINGS)}); give a file", where=str(path)
        )
    return name, [TraceFile(file, str(file)) for file in inside]
