"""One reader per trace format: a file in, checked columns of requests out."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from workloads.batch import RequestBatch
from workloads.options import ReadOptions
from workloads.readers import (
    agentic_mooncake,
    aibrix,
    applied_compute,
    azure,
    conversations,
    dynamo,
    llmservingsim,
    mooncake,
    mooncake_delta,
    native,
    native_parquet,
    otel,
    plain_csv,
    ragpulse,
    tables,
    tracelab,
    tracelab_csv,
    vllm_result,
    weka,
)
from workloads.trace_file import TraceFile
from workloads.workload import Tally

Reader = Callable[[TraceFile, Tally, ReadOptions], Iterator[RequestBatch]]


@dataclass(frozen=True, slots=True)
class Format:
    """A format of traces: how it is read, and what it is called.

    ``whole``: its requests come in any order, or wait for each other, so a trace is read whole before the first request
    is served; the others stream, sorted by arrival. ``folder``: several files of it make one trace.
    """

    read: Reader
    title: str
    whole: bool = True
    folder: bool = False


FORMATS: dict[str, Format] = {
    "native": Format(native.read, "native JSON Lines", whole=False),
    "native-parquet": Format(native_parquet.read, "native Parquet", whole=False),
    "csv": Format(
        plain_csv.read, "CSV with arrival_s,prompt_tokens,output_tokens[,prefix_id,prefix_tokens]", whole=False
    ),
    "table": Format(tables.mapped, "any CSV, JSON Lines or Parquet, with workload.columns", whole=False),
    "mooncake": Format(mooncake.read, "Mooncake and Qwen-Bailian", whole=False),
    "mooncake-delta": Format(mooncake_delta.read, "Mooncake with session_id and delay (Dynamo, AIPerf)"),
    "agentic-mooncake": Format(agentic_mooncake.read, "Dynamo agentic_mooncake"),
    "dynamo": Format(dynamo.read, "Dynamo request traces", folder=True),
    "azure": Format(azure.read, "Azure LLM inference 2023 and 2024", whole=False),
    "azure-multimodal": Format(tables.azure_multimodal, "Azure multimodal 2025", whole=False),
    "burstgpt": Format(tables.burstgpt, "BurstGPT 1 to 3", whole=False),
    "vidur": Format(tables.vidur, "Vidur", whole=False),
    "splitwise-sim": Format(tables.splitwise, "splitwise-sim", whole=False),
    "kv-cache-tester": Format(weka.read, "kv-cache-tester (WEKA) sessions", folder=True),
    "ragpulse": Format(ragpulse.read, "RAGPulse, with its files of lengths"),
    "tracelab": Format(tracelab.read, "TraceLab rounds"),
    "tracelab-csv": Format(tracelab_csv.read, "TraceLab session tables"),
    "llmservingsim": Format(llmservingsim.read, "LLMServingSim, and the requests of its vLLM runs"),
    "aibrix": Format(aibrix.read, "AIBrix"),
    "applied-compute": Format(applied_compute.read, "Applied Compute agent sessions"),
    "vllm-result": Format(vllm_result.read, "vllm bench serve --save-detailed"),
    "texts": Format(conversations.read, "ShareGPT, vLLM custom data sets, LMCache and LMBenchmark texts"),
    "otel": Format(otel.read, "OpenTelemetry GenAI spans", folder=True),
}
