"""The flags of the commands, each declared once; ``plan``'s are vLLM's own under vLLM's names."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer


def _flag(*names: str, about: str, metavar: str | None = None) -> Any:
    return typer.Option(*names, help=about, metavar=metavar, show_default=False)


Text = str | None
Switch = bool | None

ScenarioFiles = Annotated[
    list[str], typer.Argument(metavar="FILE.yaml|NAME…", help="Scenario files, or shipped names.")
]
ScenarioFile = Annotated[str, typer.Argument(metavar="FILE.yaml|NAME", help="A scenario file, or a shipped name.")]
ModelOrFile = Annotated[
    str, typer.Argument(metavar="MODEL|FILE", help="A model of the catalogue, a scenario file, or a shipped name.")
]
Out = Annotated[
    Path | None,
    typer.Option("--out", metavar="DIR", help="Where results go.", show_default="results/<name>"),
]
Set = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Set a dotted key of the scenario, as in engine.max_num_seqs=64."),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print only JSON.")]
Check = Annotated[bool, typer.Option("--check", help="Check the machine's invariants while it runs (slower).")]
NoFigures = Annotated[bool, typer.Option("--no-figures", help="Draw no figures.")]
StepLog = Annotated[
    Path | None, typer.Option("--step-log", metavar="FILE", help="Write every scheduling step as JSON Lines.")
]
RequestTokens = Annotated[
    list[str] | None,
    typer.Option("--request-tokens", metavar="L", help="Request length; repeatable.", show_default="max_model_len"),
]

MaxModelLen = Annotated[Text, _flag("--max-model-len", about="Longest request, e.g. 32k.", metavar="N")]
BlockSize = Annotated[Text, _flag("--block-size", about="Tokens per block (16).", metavar="N")]
KvCacheDtype = Annotated[Text, _flag("--kv-cache-dtype", about="auto, fp8, …", metavar="NAME")]
TensorParallel = Annotated[
    Text, _flag("--tensor-parallel-size", "-tp", about="Ranks that share each layer.", metavar="N")
]
PipelineParallel = Annotated[Text, _flag("--pipeline-parallel-size", "-pp", about="Stages of layers.", metavar="N")]
PrefixCaching = Annotated[Switch, _flag("--enable-prefix-caching/--no-enable-prefix-caching", about="Default: on.")]
Retention = Annotated[
    Text,
    _flag("--prefix-cache-retention-interval", about="0, N tokens, or none = dense.", metavar="N"),
]
DisableHybrid = Annotated[
    Switch,
    _flag(
        "--disable-hybrid-kv-cache-manager/--no-disable-hybrid-kv-cache-manager",
        about="Treat every layer as full attention.",
    ),
]
BlocksOverride = Annotated[
    Text, _flag("--num-gpu-blocks-override", about="Memory (exactly one of three): number of blocks.", metavar="N")
]
MemoryBytes = Annotated[Text, _flag("--kv-cache-memory-bytes", about="Memory: bytes per GPU, e.g. 40G.", metavar="N")]
AvailableGib = Annotated[
    Text,
    _flag("--available-kv-cache-memory-gib", about="Memory: as in vLLM's startup log.", metavar="GIB"),
]
BatchedTokens = Annotated[Text, _flag("--max-num-batched-tokens", about="Tokens per step.", metavar="N")]
MaxNumSeqs = Annotated[Text, _flag("--max-num-seqs", about="Requests per step.", metavar="N")]
AsyncScheduling = Annotated[Switch, _flag("--async-scheduling/--no-async-scheduling", about="Default: on.")]
ChunkedPrefill = Annotated[Switch, _flag("--enable-chunked-prefill/--no-enable-chunked-prefill", about="Default: on.")]
ReserveFullIsl = Annotated[
    Switch,
    _flag(
        "--scheduler-reserve-full-isl/--no-scheduler-reserve-full-isl",
        about="Admit only prompts that fit whole. Default: on.",
    ),
]
Watermark = Annotated[Text, _flag("--watermark", about="Share of blocks kept free.", metavar="X")]
GpuName = Annotated[Text, _flag("--gpu", about="GPU; sets vLLM's default budgets (H100-80GB).", metavar="NAME")]
Usage = Annotated[Text, _flag("--usage", about="server (default) or offline; sets default budgets.", metavar="WHICH")]
