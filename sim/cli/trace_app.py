"""``hybridkv trace``: the commands and their flags. What they need is imported by the command that runs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from sim.cli import flags as f

trace_app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    rich_markup_mode=None,
    help="Look at a trace of requests, convert it, cut it, make one like it, take its names away.",
)

Trace = Annotated[str, typer.Argument(metavar="TRACE", help="A trace file or folder, or sample:NAME.")]
Target = Annotated[Path, typer.Argument(metavar="OUT", help="The file to write: .parquet, .jsonl or .csv.")]
Set = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="A key of a scenario's workload, as in block_size=16."),
]
To = Annotated[
    str | None,
    typer.Option(
        "--to", metavar="FORMAT", help="native-parquet, native, mooncake or csv.", show_default="by its ending"
    ),
]
JsonFile = Annotated[
    Path | None, typer.Option("--out", metavar="FILE", help="Write the numbers as JSON.", show_default=False)
]
BlockSize = Annotated[
    int, typer.Option("--block-size", metavar="N", min=1, max=1 << 20, help="Tokens per cache block.")
]
Seed = Annotated[int, typer.Option("--seed", metavar="N", min=0, help="Seed of everything random.")]


@trace_app.command(short_help="Lengths, burstiness, prefix sharing, the cache its reuse needs.")
def stats(
    trace: Trace, set_: Set = None, block_size: BlockSize = 16, out: JsonFile = None, as_json: f.AsJson = False
) -> int:
    """Say what a trace is like: lengths, burstiness, prefix sharing by depth, and the cache its reuse needs."""
    from sim.cli.trace_commands import stats_command

    return stats_command(trace, set_ or [], block_size, out, as_json=as_json)


@trace_app.command(short_help="The first requests, as they are understood.")
def head(
    trace: Trace,
    rows: Annotated[int, typer.Option("-n", metavar="N", min=1, max=10_000, help="How many.")] = 10,
    set_: Set = None,
    as_json: f.AsJson = False,
) -> int:
    """Show the first requests of a trace as they are understood."""
    from sim.cli.trace_commands import head_command

    return head_command(trace, set_ or [], rows, as_json=as_json)


@trace_app.command(short_help="Write it in another format, native Parquet for speed.")
def convert(trace: Trace, out: Target, to: To = None, set_: Set = None, as_json: f.AsJson = False) -> int:
    """Write a trace in another format, native Parquet for speed; what the format cannot hold is said."""
    from sim.cli.trace_commands import convert_command

    return convert_command(trace, set_ or [], out, to, as_json=as_json)


@trace_app.command(short_help="Write a stretch of time, or a share of its sessions.")
def sample(
    trace: Trace,
    out: Target,
    from_s: Annotated[float, typer.Option("--from-s", metavar="S", min=0, help="From this time on.")] = 0.0,
    until_s: Annotated[
        float | None, typer.Option("--until-s", metavar="S", min=0, help="Before this time.", show_default=False)
    ] = None,
    share: Annotated[float, typer.Option("--share", metavar="P", min=0, max=1, help="Of sessions, each whole.")] = 1.0,
    seed: Seed = 0,
    to: To = None,
    set_: Set = None,
    as_json: f.AsJson = False,
) -> int:
    """Write a part of a trace: a stretch of time, a share of its sessions."""
    from sim.cli.trace_commands import sample_command

    return sample_command(trace, set_ or [], out, to, (from_s, until_s, share, seed), as_json=as_json)


@trace_app.command(short_help="Write a trace like it, and say how close it came.")
def synth(
    trace: Trace,
    out: Target,
    requests: Annotated[
        int | None, typer.Option("--requests", metavar="N", min=2, help="How many.", show_default="as in the trace")
    ] = None,
    rate: Annotated[float, typer.Option("--rate", metavar="X", min=1e-6, max=1e6, help="Times as fast.")] = 1.0,
    seed: Seed = 0,
    fit: Annotated[
        Path | None, typer.Option("--fit", metavar="FILE", help="Write what was fitted as JSON.", show_default=False)
    ] = None,
    to: To = None,
    set_: Set = None,
    as_json: f.AsJson = False,
) -> int:
    """Write a trace like a trace: fit lengths, burstiness and the tree of prefixes, draw, and say how close it came."""
    from sim.cli.trace_synth import SynthOptions, synth_command

    return synth_command(trace, set_ or [], out, to, SynthOptions(requests, rate, seed, fit), as_json=as_json)


@trace_app.command(short_help="Write it without names; what is shared stays shared.")
def anonymize(trace: Trace, out: Target, to: To = None, set_: Set = None, as_json: f.AsJson = False) -> int:
    """Write a trace without names: which content is equal, lengths and times stay, everything else goes."""
    from sim.cli.trace_commands import anonymize_command

    return anonymize_command(trace, set_ or [], out, to, as_json=as_json)
