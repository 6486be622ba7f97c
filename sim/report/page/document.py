"""The page put together: one HTML file with everything inside it, no address of anything outside."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from importlib.resources import files
from shlex import quote

from sim.report.page.answer import answer, uncertainty
from sim.report.page.figures import charts
from sim.report.page.read import Run
from sim.report.page.tables import differences_html, numbers_html
from sim.report.run_tables import model_line


def page_html(runs: Sequence[Run]) -> str:
    """One page about ``runs``: the question, the answer, the numbers, the figures, how to reproduce it.

    Whatever came from files is escaped. Equal runs give equal pages.
    """
    question = runs[0].scenario.question or f"What happened in {runs[0].scenario.name}?"
    parts = [
        f"<h1>{escape(question)}</h1>",
        f'<p class="answer">{escape(answer(runs))}</p>',
        f'<p class="trust">{escape(uncertainty(runs))}</p>',
        *(f'<p class="expected">Expected: {escape(text)}</p>' for text in _expected(runs)),
        *_section("Figures", f'<div class="charts">{"".join(charts(runs))}</div>'),
        *_section("Numbers", numbers_html(runs)),
        *(_section("What the scenarios differ in", differences_html(runs)) if len(runs) > 1 else ()),
        *_section("Reproduce it", "".join(_reproduce(run) for run in runs)),
    ]
    return _SHELL.format(
        title=escape(question),
        policy=_POLICY,
        style=_resource("page.css"),
        script=_resource("page.js"),
        subtitle=escape("; ".join(dict.fromkeys(model_line(run.scenario) for run in runs))),
        body="\n".join(parts),
    )


_POLICY = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:"
"""What the page may load: nothing but what it holds."""
_SHELL = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<title>{title}</title>
<link rel="icon" href="data:,">
<style>
{style}</style>
</head>
<body>
<header>{subtitle}</header>
<main>
{body}
</main>
<footer>Made by hybridkv, a simulator of vLLM 0.33.0's scheduler and hybrid KV cache manager.</footer>
<div id="tip" role="status" hidden></div>
<script>
{script}</script>
</body>
</html>
"""


def _resource(name: str) -> str:
    return (files("sim.report.page") / name).read_text(encoding="utf-8")


def _section(title: str, inside: str) -> list[str]:
    return [f"<section><h2>{escape(title)}</h2>", inside, "</section>"]


def _expected(runs: Sequence[Run]) -> list[str]:
    return list(dict.fromkeys(run.scenario.expected for run in runs if run.scenario.expected))


def _reproduce(run: Run) -> str:
    """The command, and the resolved scenario it needs."""
    command = f"hybridkv run {quote(str(run.folder / 'scenario.resolved.yaml'))}"
    return (
        f"<details><summary>{escape(run.label)}: <code>{escape(command)}</code></summary>"
        f"<pre>{escape(run.resolved)}</pre></details>"
    )
