"""``hybridkv trace stats``, ``head``, ``convert``, ``sample`` and ``anonymize``."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sim.cli.console import print_json, print_tables
from sim.errors import InputError, nearest
from sim.report.folder import staged_file, staged_path
from sim.report.tables import Table, number
from sim.report.trace_tables import head_table, provenance_rows, stats_tables
from sim.scenario.overrides import parse_override
from workloads import RequestBatch, Workload, open_workload
from workloads.batch import concat
from workloads.sampling import Sample
from workloads.stats.prefixes import hit_tokens
from workloads.stats.summary import describe
from workloads.writers import ENDINGS, WRITERS, Batches, anonymous

ROWS = 1 << 16


def opened(trace: str, sets: Sequence[str]) -> Workload:
    """The trace as a workload; ``sets`` are keys of a scenario's ``workload``."""
    config: dict[str, Any] = {"trace": trace}
    for item in sets:
        override = parse_override(item)
        where = config
        for part in override.path[:-1]:
            where = where.setdefault(part, {})
            if not isinstance(where, dict):
                raise InputError(f"{part} is no mapping", where=override.place)
        where[override.path[-1]] = override.value
    return open_workload(config, Path(), 0)


def stats_command(trace: str, sets: Sequence[str], block_size: int, out: Path | None, *, as_json: bool) -> int:
    """Read the whole trace and print its statistics."""
    workload = opened(trace, sets)
    with counting(workload) as counted:
        batch = concat(list(counted(workload.batches(ROWS))))
    stats = describe(batch, block_size)
    answer = {"trace": workload.describe(), **stats}
    if out is not None:
        with staged_file(out) as stream:
            json.dump(answer, stream, indent=2, ensure_ascii=False)
            stream.write("\n")
    if as_json:
        print_json(answer)
    else:
        print_tables(stats_tables(answer["trace"], stats))
    return 0


def head_command(trace: str, sets: Sequence[str], rows: int, *, as_json: bool) -> int:
    """Print the first requests."""
    workload = opened(trace, [*sets, f"limit={rows}"])
    batch = concat(list(workload.batches(ROWS)))
    found = [row for row, _ in zip(head_rows(batch), range(rows), strict=False)]
    if as_json:
        print_json(found)
    else:
        print_tables([head_table(workload.describe(), found)])
    return 0


def head_rows(batch: RequestBatch) -> Iterator[dict[str, Any]]:
    """The requests of a batch in plain values."""
    shared = hit_tokens(batch, answers=True)
    for i, name in enumerate(batch.ids):
        waits = int(batch.think_ns[i])
        yield {
            "id": name,
            "arrival_s": int(batch.arrival_ns[i]) / 1e9,
            "prompt_tokens": int(batch.prompt_tokens[i]),
            "output_tokens": int(batch.output_tokens[i]),
            "shared_tokens": int(shared[i]),
            "session": batch.sessions[i],
            "turn": int(batch.turn[i]),
            "think_s": waits / 1e9 if waits >= 0 else None,
        }


def convert_command(trace: str, sets: Sequence[str], out: Path, to: str | None, *, as_json: bool) -> int:
    """Write the trace as it is."""
    workload = opened(trace, sets)
    return written(workload, lambda: workload.batches(ROWS), out, to, as_json=as_json)


def sample_command(
    trace: str,
    sets: Sequence[str],
    out: Path,
    to: str | None,
    wanted: tuple[float, float | None, float, int],
    *,
    as_json: bool,
) -> int:
    """Write a part of the trace."""
    workload = opened(trace, sets)
    from_s, until_s, share, seed = wanted
    sample = Sample(round(from_s * 1e9), None if until_s is None else round(until_s * 1e9), share, seed)
    return written(workload, lambda: sample.of(workload.batches(ROWS)), out, to, as_json=as_json)


def anonymize_command(trace: str, sets: Sequence[str], out: Path, to: str | None, *, as_json: bool) -> int:
    """Write the trace without names."""
    workload = opened(trace, sets)
    return written(workload, lambda: anonymous(workload.batches(ROWS)), out, to, as_json=as_json)


def output_format(out: Path, to: str | None) -> str:
    """The format to write: as asked for, or by the ending of ``out``; InputError for one that is not written."""
    form = to or ENDINGS.get(out.suffix)
    if form in WRITERS:
        return form
    close = nearest(to or out.suffix, [*WRITERS, *ENDINGS])
    hint = f" (did you mean {close!r}?)" if close else ""
    raise InputError(
        f"{to or out.suffix or out.name!r} is no format that is written{hint}; allowed: {', '.join(WRITERS)}",
        where="--to" if to else str(out),
    )


def written(workload: Workload, batches: Batches, out: Path, to: str | None, *, as_json: bool) -> int:
    """Write the requests to ``out`` and say what was written and what was lost."""
    form = output_format(out, to)
    total = 0

    def whole() -> Iterator[RequestBatch]:
        nonlocal total
        total = 0
        with counting(workload) as counted:
            for batch in counted(batches()):
                total += len(batch)
                yield batch
        if not total:
            raise InputError("no request is left of the trace; ask for more of it", where=str(out))

    with staged_path(out) as path:
        lost = WRITERS[form](whole, path)
    described = workload.describe()
    answer = {"trace": described, "written": {"path": str(out), "format": form, "requests": total, "rows_lost": lost}}
    if as_json:
        print_json(answer)
        return 0
    said = [("written", f"{number(total)} requests as {form} to {out}")]
    said += [("lost", f"{number(rows)} rows: {reason.replace('_', ' ')}") for reason, rows in lost.items()]
    print_tables([Table("Trace", ("", ""), [*provenance_rows(described), *said], prose=True)])
    return 0


@contextmanager
def counting(workload: Workload) -> Iterator[Any]:
    """A function that passes batches on and, where stderr is a terminal, shows how many requests have gone by."""
    if not sys.stderr.isatty():
        yield lambda batches: batches
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}"), BarColumn(bar_width=20), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(workload.name, total=workload.expected_requests)

        def counted(batches: Iterable[RequestBatch]) -> Iterator[RequestBatch]:
            for batch in batches:
                bar.advance(task, len(batch))
                yield batch

        yield counted
