"""The flags of the commands, each declared once; vLLM's own are in ``sim.vllm_flags``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer


def _flag(*names: str, about: str, metavar: str | None = None) -> Any:
    return typer.Option(*names, help=about, metavar=metavar, show_default=False)


Text = str | None

ScenarioFiles = Annotated[
    list[str], typer.Argument(metavar="FILE.yaml|NAME…", help="Scenario files, or shipped names.")
]
ScenarioFile = Annotated[str, typer.Argument(metavar="FILE.yaml|NAME", help="A scenario file, or a shipped name.")]
ModelOrCommand = Annotated[
    list[str],
    typer.Argument(
        metavar="MODEL|FILE [FLAGS]",
        help="A model of the catalogue, a scenario or vLLM configuration file, or a 'vllm serve' command line.",
    ),
]


def _results(suffix: str = "") -> Any:
    return typer.Option("--out", metavar="DIR", help="Where results go.", show_default=f"results/<name>{suffix}")


Out = Annotated[Path | None, _results()]
CurveOut = Annotated[Path | None, _results("-curve")]
CompareOut = Annotated[Path | None, _results("-compare")]
CapacityOut = Annotated[Path | None, _results("-capacity")]
SweepOut = Annotated[Path | None, _results("-sweep")]
Set = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Set a dotted key of the scenario, as in engine.max_num_seqs=64."),
]
SpeculativeConfig = Annotated[
    Text,
    _flag(
        "--speculative-config",
        metavar="JSON",
        about="Drafts as vLLM takes them, as in {'method': 'ngram', 'num_speculative_tokens': 3} in double quotes.",
    ),
]
NameParts = Annotated[
    list[str] | None, typer.Argument(metavar="PART…", help="Parts of names or checkpoints.", show_default=False)
]
AllowDownload = Annotated[
    bool, typer.Option("--allow-download", help="Ask the hub for the config.json of a model that is not here.")
]
SweepFile = Annotated[str, typer.Argument(metavar="FILE.yaml|NAME", help="A sweep file, or a shipped name.")]
Workers = Annotated[
    int | None,
    typer.Option("--workers", min=1, max=1024, metavar="N", help="Processes at a time.", show_default="all cores"),
]
Ray = Annotated[
    Text,
    _flag(
        "--ray",
        metavar="[ADDRESS]",
        about="Run on a Ray cluster: at host:port, 'auto' (this machine's), 'local' (a new one); alone: one that Ray "
        "finds, else a new one.",
    ),
]
Plot = Annotated[
    Text, _flag("--plot", about="Draw columns: x,y or x,y,series; y+y for several.", metavar="X,Y[,SERIES]")
]
Slo = Annotated[
    str, _flag("--slo", about="Targets in seconds, as in 'ttft_s.p99<1.0, tpot_s.p90<0.05'.", metavar="TARGETS")
]
Over = Annotated[
    str,
    typer.Option("--over", metavar="WHAT", help="What is searched: rate (requests/s), concurrency, memory or gpus."),
]
Seeds = Annotated[
    int,
    typer.Option(
        "--seeds",
        min=1,
        max=100,
        metavar="N",
        help="Searches, each with random numbers of its own; their limits are shown.",
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print only JSON.")]
Check = Annotated[bool, typer.Option("--check", help="Check the machine's invariants while it runs (slower).")]
Explain = Annotated[
    bool, typer.Option("--explain", help="Say what became of prompt tokens that were not hit (slower).")
]
NoFigures = Annotated[bool, typer.Option("--no-figures", help="Draw no figures.")]
StepLog = Annotated[
    Path | None, typer.Option("--step-log", metavar="FILE", help="Write every scheduling step as JSON Lines.")
]
KVEvents = Annotated[
    Path | None,
    typer.Option("--kv-events", metavar="FILE", help="Write every KV cache event as JSON Lines, in vLLM's order."),
]
RequestTokens = Annotated[
    list[str] | None,
    typer.Option("--request-tokens", metavar="L", help="Request length; repeatable.", show_default="max_model_len"),
]

AvailableGib = Annotated[
    Text,
    _flag(
        "--available-kv-cache-memory-gib",
        about="Memory for the KV cache per GPU, as vLLM's log prints it.",
        metavar="GIB",
    ),
]
GpuName = Annotated[Text, _flag("--gpu", about="GPU; sets vLLM's default budgets (H100-80GB).", metavar="NAME")]
MeasuredGpu = Annotated[Text, _flag("--gpu", about="The GPU that was measured (H100-80GB).", metavar="NAME")]
Usage = Annotated[Text, _flag("--usage", about="server (default) or offline; sets default budgets.", metavar="WHICH")]
VllmRelease = Annotated[Text, _flag("--vllm", about="What that release prints, 0.10 to 0.33.", metavar="X.Y")]
Diff = Annotated[
    tuple[str, str] | None,
    typer.Option("--diff", metavar="X.Y X.Y", help="Compare two releases: what changed, and why.", show_default=False),
]
WhatIfGroupSize = Annotated[
    list[str] | None,
    typer.Option("--what-if-group-size", metavar="N", help="Other groups: a number, min, max, gcd, per-layer."),
]
WaterfallFigure = Annotated[
    Path | None,
    typer.Option("--figure", metavar="FILE.png", help="Draw where the memory goes.", show_default=False),
]
LogFile = Annotated[str, typer.Argument(metavar="FILE|-", help="A startup log, or a saved /metrics page; - reads it.")]
LogModel = Annotated[Text, _flag("--model", about="The model, where the log does not name it.", metavar="NAME")]
PointsAndModel = Annotated[
    list[str],
    typer.Argument(metavar="POINTS… MODEL|FILE", help="Measured points (.csv, .json), then a model or a scenario."),
]
Release = Annotated[Text, _flag("--vllm", about="The release that was measured, for the record.", metavar="VERSION")]
StepTimeOut = Annotated[
    Path | None, typer.Option("--out", metavar="FILE", help="The file to write.", show_default="step-time.yaml")
]
ResultFolders = Annotated[
    list[Path], typer.Argument(metavar="DIR…", help="Folders that run or compare wrote.", show_default=False)
]
PageOut = Annotated[
    Path | None, typer.Option("--out", metavar="FILE", help="The page.", show_default="DIR/report.html")
]
Perfetto = Annotated[
    Path | None,
    typer.Option("--perfetto", metavar="FILE", help="Also write a trace of events that ui.perfetto.dev opens."),
]
RequestId = Annotated[str, typer.Argument(metavar="REQUEST-ID", help="The request's id.", show_default=False)]
ResultFolder = Annotated[Path, typer.Argument(metavar="DIR", help="A folder that run wrote.", show_default=False)]
NewFile = Annotated[Path, typer.Argument(metavar="FILE.yaml", help="The scenario to write.", show_default=False)]
Trace = Annotated[Text, _flag("--trace", about="The traffic: a trace file, or sample:NAME.", metavar="FILE")]
GpuNames = Annotated[
    list[str] | None, typer.Option("--gpu", metavar="NAME", help="A GPU; repeatable.", show_default="H100-80GB")
]
