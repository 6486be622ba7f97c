"""The commands and their flags. Everything heavy is imported by the command that needs it, never here."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from sim.cli import flags as f

_HELP = """How many requests fit, what the prefix cache gives, who is preempted, how fast it runs: vLLM 0.33.0 with its
hybrid KV cache manager, simulated block for block on your traffic."""

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None, help=_HELP)


def command() -> Any:
    """The command-line parser, ready to be called with arguments."""
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


@app.command()
def run(
    files: f.ScenarioFiles,
    out: f.Out = None,
    set_: f.Set = None,
    as_json: f.AsJson = False,
    check: f.Check = False,
    no_figures: f.NoFigures = False,
    step_log: f.StepLog = None,
) -> int:
    """Run scenarios on their traffic: who fits, what hits, who is preempted, how fast."""
    from sim.cli.run_command import RunOptions, run_command

    options = RunOptions(out=out, as_json=as_json, check=check, figures=not no_figures, step_log=step_log)
    return run_command(files, set_ or [], options)


@app.command()
def plan(
    context: typer.Context,
    model: f.ModelOrFile,
    request_tokens: f.RequestTokens = None,
    as_json: f.AsJson = False,
    num_gpu_blocks_override: f.BlocksOverride = None,
    kv_cache_memory_bytes: f.MemoryBytes = None,
    available_kv_cache_memory_gib: f.AvailableGib = None,
    max_model_len: f.MaxModelLen = None,
    block_size: f.BlockSize = None,
    kv_cache_dtype: f.KvCacheDtype = None,
    tensor_parallel_size: f.TensorParallel = None,
    pipeline_parallel_size: f.PipelineParallel = None,
    enable_prefix_caching: f.PrefixCaching = None,
    prefix_cache_retention_interval: f.Retention = None,
    disable_hybrid_kv_cache_manager: f.DisableHybrid = None,
    max_num_batched_tokens: f.BatchedTokens = None,
    max_num_seqs: f.MaxNumSeqs = None,
    async_scheduling: f.AsyncScheduling = None,
    enable_chunked_prefill: f.ChunkedPrefill = None,
    scheduler_reserve_full_isl: f.ReserveFullIsl = None,
    watermark: f.Watermark = None,
    gpu: f.GpuName = None,
    usage: f.Usage = None,
) -> int:
    """Say what fits, without a trace: groups, blocks, vLLM's startup numbers, or its refusal."""
    from sim.cli.plan_command import plan_command

    own = {"model", "request_tokens", "as_json"}
    flags = {name: value for name, value in context.params.items() if name not in own}
    return plan_command(model, request_tokens, flags, as_json=as_json)


@app.command()
def curve(
    file: f.ScenarioFile,
    out: f.Out = None,
    set_: f.Set = None,
    request_tokens: f.RequestTokens = None,
    as_json: f.AsJson = False,
) -> int:
    """Show capacity against request length, with the hybrid manager and without it."""
    from sim.cli.curve_command import curve_command

    return curve_command(file, set_ or [], out, request_tokens, as_json=as_json)


@app.command()
def compare(
    file: f.ScenarioFile,
    out: f.Out = None,
    set_: f.Set = None,
    as_json: f.AsJson = False,
    no_figures: f.NoFigures = False,
) -> int:
    """Run a scenario's variants on the same traffic, side by side (default: hybrid manager on, and off)."""
    from sim.cli.compare_command import compare_command

    return compare_command(file, set_ or [], out, as_json=as_json, figures=not no_figures)


@app.command()
def scenarios(as_json: f.AsJson = False) -> int:
    """List the shipped scenarios and the question each answers."""
    from sim.cli.lists import list_scenarios

    return list_scenarios(as_json=as_json)


@app.command()
def models(as_json: f.AsJson = False) -> int:
    """List the models known by name."""
    from sim.cli.lists import list_models

    return list_models(as_json=as_json)
