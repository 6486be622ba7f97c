"""``hybridkv gpu-check``: the simulator's claims about a scenario, tried on a device.

Nothing in ``sim`` imports this package. ``hybridkv`` finds the command as an entry point of the group
``hybridkv.commands``, as it would find that of any other distribution; ``python -m gpu_check`` needs no installation.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from sim.cli.errors import guarded
from sim.cli.flags import AsJson, ScenarioFile, Set

PROGRAM = "gpu-check"

_Device = Annotated[str, typer.Option("--device", metavar="cuda|cpu|auto", help="Where the tensors live.")]
_Fraction = Annotated[
    float | None,
    typer.Option("--fraction", metavar="F", help="Share of free memory to fill.", show_default="cuda: 0.9, cpu: 0.05"),
]
_Bytes = Annotated[
    str | None,
    typer.Option("--bytes", metavar="N", help="Bytes of memory to fill, as in 2G.", show_default="by --fraction"),
]
_Out = Annotated[
    Path | None,
    typer.Option("--out", metavar="DIR", help="Where results go.", show_default="results/<name>-gpu-check"),
]
_Checks = Annotated[
    str, typer.Option("--checks", metavar="LIST", help="Which of memory,content,throughput, by commas.")
]


def register(app: typer.Typer) -> None:
    """Add the command to ``hybridkv``'s."""
    app.command(PROGRAM)(gpu_check)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run ``python -m gpu_check`` with ``arguments`` (default: the process's own); returns the exit code."""
    app = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)
    register(app)
    return guarded(lambda: _code(typer.main.get_command(app), arguments))


def _code(command: Any, arguments: Sequence[str] | None) -> int:
    given = None if arguments is None else list(arguments)
    outcome = command.main(args=given, prog_name="python -m gpu_check", standalone_mode=False)
    return outcome if isinstance(outcome, int) else 0


def gpu_check(
    file: ScenarioFile,
    device: _Device = "auto",
    fraction: _Fraction = None,
    bytes_: _Bytes = None,
    checks: _Checks = "memory,content,throughput",
    out: _Out = None,
    set_: Set = None,
    as_json: AsJson = False,
) -> int:
    """Try to prove the simulator wrong with real tensors: memory, contents and step times of a scenario.

    Ends with 0 when all that was tested is confirmed, with 1 when something is refuted, with 2 when nothing could run.
    """
    from gpu_check.run import Request, run_check

    return run_check(Request(file, device, fraction, bytes_, checks, out, tuple(set_ or ()), as_json))
