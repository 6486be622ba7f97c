"""One self-contained HTML page about one run, or several side by side."""

from __future__ import annotations

from sim.report.page.document import page_html
from sim.report.page.read import Run, read_runs

__all__ = ["Run", "page_html", "read_runs"]
