"""The commands and their flags. Everything heavy is imported by the command that needs it, never here."""

from __future__ import annotations

from functools import cache
from importlib.metadata import entry_points
from typing import Annotated, Any

import typer

from sim.cli import flags as f
from sim.cli.optional_value import SweepCommand
from sim.cli.trace_app import trace_app

_HELP = """How many requests fit, what the prefix cache gives, who is preempted, how fast it runs: vLLM 0.33.0 with its
hybrid KV cache manager, simulated block for block on your traffic."""
_START = "To begin: 'hybridkv plan gemma-3-27b', then 'hybridkv run hybrid-vs-all-full'."

app = typer.Typer(
    add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None, help=_HELP, epilog=_START
)


COMMANDS = "hybridkv.commands"
"""The group of entry points in which an installed package offers a command: a function that adds it to ``app``."""


app.add_typer(trace_app, name="trace", short_help="Look at a trace, convert it, cut it, make one like it.")


@cache
def command() -> Any:
    """The command-line parser, ready to be called with arguments; with the commands of what stands on ``sim``."""
    for offered in sorted(entry_points(group=COMMANDS)):
        offered.load()(app)
    return typer.main.get_command(app)


def _version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import PackageNotFoundError, version

        try:
            typer.echo(f"hybridkv {version('hybridkv')}")
        except PackageNotFoundError:
            typer.echo("hybridkv (not installed)")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    pass


@app.command(short_help="Run scenarios: who fits, what hits, who waits, how fast.")
def run(
    files: f.ScenarioFiles,
    out: f.Out = None,
    set_: f.Set = None,
    speculative_config: f.SpeculativeConfig = None,
    as_json: f.AsJson = False,
    check: f.Check = False,
    explain: f.Explain = False,
    no_figures: f.NoFigures = False,
    step_log: f.StepLog = None,
    kv_events: f.KVEvents = None,
) -> int:
    """Run scenarios on their traffic: who fits, what hits, who is preempted, how fast."""
    from sim.cli.given import set_overrides
    from sim.cli.run_command import RunOptions, run_command

    options = RunOptions(
        out=out,
        as_json=as_json,
        check=check,
        explain=explain,
        figures=not no_figures,
        step_log=step_log,
        kv_events=kv_events,
    )
    return run_command(files, set_overrides(set_ or [], speculative_config), options)


@app.command(
    short_help="What fits, without a trace: vLLM's startup numbers.", context_settings={"ignore_unknown_options": True}
)
def plan(
    words: f.ModelOrCommand,
    request_tokens: f.RequestTokens = None,
    as_json: f.AsJson = False,
    available_kv_cache_memory_gib: f.AvailableGib = None,
    gpu: f.GpuName = None,
    usage: f.Usage = None,
    allow_download: f.AllowDownload = False,
    vllm: f.VllmRelease = None,
    diff: f.Diff = None,
    what_if_group_size: f.WhatIfGroupSize = None,
    figure: f.WaterfallFigure = None,
) -> int:
    """Say what fits, without a trace: groups, blocks, vLLM's startup numbers, or its refusal.

    After the model come any flags of 'vllm serve', under their own names: --max-model-len (-1: the longest that fits),
    --tensor-parallel-size, --kv-cache-dtype, --disable-hybrid-kv-cache-manager, --gpu-memory-utilization, … A whole
    command line goes behind two dashes: hybridkv plan -- vllm serve MODEL --max-model-len 65536
    """
    from sim.cli.plan_command import plan_command
    from sim.cli.plan_question import PlanFlags

    own = PlanFlags(
        gpu,
        usage,
        available_kv_cache_memory_gib,
        allow_download,
        releases=_releases(vllm, diff),
        group_sizes=tuple(what_if_group_size or ()),
        figure=figure,
    )
    return plan_command(words, request_tokens, own, as_json=as_json)


def _releases(vllm: str | None, diff: tuple[str, str] | None) -> tuple[tuple[str, str], ...]:
    """The releases to print beside each other, each with the flag that asks for it."""
    if diff:
        return tuple(("--diff", name) for name in diff)
    return (("--vllm", vllm), ("--vllm", "0.33")) if vllm else ()


@app.command(short_help="What a startup log or /metrics page says, and if it adds up.")
def explain_log(file: f.LogFile, as_json: f.AsJson = False, model: f.LogModel = None) -> int:
    """Explain a vLLM startup log or /metrics page: what each number means, whether it adds up, what would help."""
    from sim.cli.explain_log_command import explain_log_command

    return explain_log_command(file, model, as_json=as_json)


@app.command(short_help="Capacity against request length, hybrid and all-full.")
def curve(
    file: f.ScenarioFile,
    out: f.CurveOut = None,
    set_: f.Set = None,
    speculative_config: f.SpeculativeConfig = None,
    request_tokens: f.RequestTokens = None,
    as_json: f.AsJson = False,
) -> int:
    """Show capacity against request length, with the hybrid manager and without it."""
    from sim.cli.curve_command import curve_command
    from sim.cli.given import set_overrides

    return curve_command(file, set_overrides(set_ or [], speculative_config), out, request_tokens, as_json=as_json)


@app.command(short_help="Variants of a scenario on the same traffic, side by side.")
def compare(
    file: f.ScenarioFile,
    out: f.CompareOut = None,
    set_: f.Set = None,
    speculative_config: f.SpeculativeConfig = None,
    as_json: f.AsJson = False,
    no_figures: f.NoFigures = False,
) -> int:
    """Run a scenario's variants on the same traffic, side by side (default: hybrid manager on, and off)."""
    from sim.cli.compare_command import compare_command
    from sim.cli.given import set_overrides

    return compare_command(
        file, set_overrides(set_ or [], speculative_config), out, as_json=as_json, figures=not no_figures
    )


@app.command(short_help="The largest load that meets latency targets.")
def capacity(
    file: f.ScenarioFile,
    slo: f.Slo,
    over: f.Over = "rate",
    seeds: f.Seeds = 3,
    out: f.CapacityOut = None,
    set_: f.Set = None,
    workers: f.Workers = None,
    as_json: f.AsJson = False,
    no_figures: f.NoFigures = False,
) -> int:
    """Find the largest load that meets targets, per variant (default: hybrid manager on, and off)."""
    from sim.cli.capacity_command import CapacityOptions, capacity_command

    options = CapacityOptions(slo, over, seeds, out, as_json, workers, not no_figures)
    return capacity_command(file, set_ or [], options)


@app.command(short_help="A scenario at many points, on all cores or on Ray.", cls=SweepCommand)
def sweep(
    file: f.SweepFile,
    out: f.SweepOut = None,
    set_: f.Set = None,
    workers: f.Workers = None,
    ray: f.Ray = None,
    plot: f.Plot = None,
    as_json: f.AsJson = False,
) -> int:
    """Run a scenario at many points, on all cores or on Ray; a sweep that was stopped goes on where it was."""
    from sim.cli.sweep_command import SweepOptions, sweep_command

    return sweep_command(file, set_ or [], SweepOptions(out, as_json, workers, ray, plot))


@app.command(short_help="Fit step times to what you measured.")
def calibrate(
    words: f.PointsAndModel,
    gpu: f.MeasuredGpu = None,
    set_: f.Set = None,
    release: f.Release = None,
    out: f.StepTimeOut = None,
    as_json: f.AsJson = False,
) -> int:
    """Fit step times to measured serving points: a CSV file, or results of 'vllm bench serve'."""
    from sim.cli.calibrate_command import calibrate_command

    return calibrate_command(words, set_ or [], gpu, release, out, as_json=as_json)


@app.command(short_help="The scenarios that come with it, and their questions.")
def scenarios(as_json: f.AsJson = False) -> int:
    """List the shipped scenarios and the question each answers."""
    from sim.cli.lists import list_scenarios

    return list_scenarios(as_json=as_json)


@app.command(short_help="The models known by name, and what their layers save.")
def models(parts: f.NameParts = None, as_json: f.AsJson = False) -> int:
    """List the models known by name, or those whose name holds a PART: layers, groups, blocks, bytes per token."""
    from sim.cli.models_command import models_command

    return models_command(parts or [], as_json=as_json)


@app.command(short_help="The life of one request of a run.")
def explain(request: f.RequestId, folder: f.ResultFolder, as_json: f.AsJson = False) -> int:
    """Tell the life of one request: why it waited, what it hit and lost, which blocks it held and gave back."""
    from sim.cli.explain_command import explain_command

    return explain_command(request, folder, as_json=as_json)


@app.command(
    short_help="A scenario file from a 'vllm serve' line, a trace and GPUs.",
    context_settings={"ignore_unknown_options": True},
)
def new(
    file: f.NewFile,
    words: f.ModelOrCommand,
    trace: f.Trace = None,
    gpu: f.GpuNames = None,
    available_kv_cache_memory_gib: f.AvailableGib = None,
) -> int:
    """Write a scenario file from a model or a 'vllm serve' line, a trace, and the GPUs in question.

    Each further --gpu becomes a variant, with the KV cache memory left there: hybridkv compare tells them apart.
    """
    from sim.cli.new_command import new_command

    return new_command(file, words, trace, gpu or [], available_kv_cache_memory_gib)


@app.command(short_help="One HTML page of results, several runs side by side.")
def report(
    folders: f.ResultFolders,
    out: f.PageOut = None,
    perfetto: f.Perfetto = None,
) -> int:
    """Make one HTML page of results, several runs side by side; it opens from disk and needs no network."""
    from sim.cli.report_command import report_command

    return report_command(folders, out, perfetto)
