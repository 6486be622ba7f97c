"""``hybridkv report``: results in, one page out."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from sim.report.folder import staged_file
from sim.report.page import page_html, read_runs
from sim.report.perfetto import write_trace


def report_command(folders: Sequence[Path], out: Path | None, perfetto: Path | None) -> int:
    """Write the page (and the trace of events), then say where it is."""
    runs = read_runs(folders)
    page = out or folders[0] / "report.html"
    with staged_file(page) as stream:
        stream.write(page_html(runs))
    sys.stdout.write(f"{page}\n")
    if perfetto is not None:
        with staged_file(perfetto) as stream:
            write_trace(stream, runs)
        sys.stdout.write(f"{perfetto}\n")
    return 0
