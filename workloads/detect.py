"""Which format a trace has, told from its first lines and never from its name."""

from __future__ import annotations

import json
import re

from workloads.errors import WorkloadError, nearest, show
from workloads.options import ReadOptions
from workloads.parquet import ParquetFile
from workloads.readers import FORMATS, azure, mooncake, native, native_parquet, plain_csv
from workloads.readers.csv_rows import split_header
from workloads.trace_file import TraceFile

READ = (
    "formats read: native JSON Lines and Parquet, CSV with arrival_s,prompt_tokens,output_tokens[,prefix_id,"
    "prefix_tokens], any table with workload.columns, and the published ones: "
    + ", ".join(name for name in FORMATS if name not in ("native", "native-parquet", "csv", "table"))
)
# Keys (all present in the first lines) that tell a format, most telling first.
JSON_KEYS: tuple[tuple[frozenset[str], str], ...] = tuple(
    (frozenset(keys.split()), name)
    for keys, name in (
        ("block_size requests", "kv-cache-tester"),
        ("input_lens start_times", "vllm-result"),
        ("input_lens output_lens", "vllm-result"),
        ("prefix_tokens timing_events", "tracelab"),
        ("resourceSpans", "otel"),
        ("spans", "otel"),
        ("chat_id input_length", "mooncake"),
        ("hash_ids input_length sys_prompt", "ragpulse"),
        ("input_toks", "llmservingsim"),
        ("sub_requests", "llmservingsim"),
        ("timestamp requests", "aibrix"),
        ("num_turns assistant_response_length", "applied-compute"),
        ("session_id delay input_length", "mooncake-delta"),
        ("session_id delay input_tokens", "mooncake-delta"),
        ("conversations", "texts"),
        ("input output", "texts"),
        ("input output_length", "texts"),
        ("prompt output_tokens", "texts"),
    )
)
OTHER_JSON = (
    (
        {"total_input_tokens", "request_throughput"},
        "a vLLM benchmark result without its requests; save it with --save-detailed",
    ),
    ({"engine_kwargs"}, "a description of a run, not its requests"),
    ({"token_length"}, "a RAGPulse file of lengths; give 0_trace.jsonl, which it belongs to"),
)
CSV_COLUMNS: tuple[tuple[frozenset[str], str], ...] = (
    (frozenset({"timestamp", "request tokens", "response tokens"}), "burstgpt"),
    (frozenset({"timestamp", "numimages", "contexttokens"}), "azure-multimodal"),
    (frozenset({"num_prefill_tokens", "num_decode_tokens"}), "vidur"),
    (frozenset({"arrival_timestamp", "prompt_size", "token_size"}), "splitwise-sim"),
    (frozenset({"session_id", "round_idx", "prefix_len"}), "tracelab-csv"),
)
OTHER_CSV = frozenset({"prompt_throughput", "kv_cache_pct"})
HEAD_ROWS = 20
KEY = re.compile(r'"([^"\\]{1,64})"\s*:')


def detect_format(trace: TraceFile, options: ReadOptions) -> str:
    """The name of the reader for ``trace``; raises `WorkloadError` naming the format when there is none."""
    if options.columns:
        return "table"
    if trace.parquet:
        columns = ParquetFile(trace.path, trace.label).columns
        if native_parquet.is_native(columns):
            return "native-parquet"
        raise WorkloadError(
            f"a Parquet file with the columns {', '.join(columns)[:200]}; say which are which in workload.columns, as "
            "in {arrival: start_ms, prompt_tokens: isl, output_tokens: osl}",
            where=trace.label,
        )
    number, line = trace.first_line
    where = f"{trace.label}:{number}"
    if line.startswith(("{", "[")):
        return json_format(trace, line, where)
    return csv_format(line, where)


def json_format(trace: TraceFile, line: str, where: str) -> str:
    """The format that the keys of the first lines tell, or of the whole head where those are no whole objects."""
    schema, keys = head_keys(trace)
    if not keys:
        raise WorkloadError(
            f"not a JSON object on one line: {show(line)}; write one whole object per line", where=where
        )
    if schema == "dynamo.agentic_mooncake":
        return "agentic-mooncake"
    if (schema or "").startswith("dynamo.request.trace") or ("event_type" in keys and "chat_id" not in keys):
        return "dynamo"
    for telling, what in OTHER_JSON:
        if telling <= keys and "start_times" not in keys:
            raise WorkloadError(f"this is {what}", where=where)
    if "arrival_s" not in keys:
        found = next((name for telling, name in JSON_KEYS if telling <= keys), None)
        if found is not None:
            return found
    if line.startswith("["):
        raise WorkloadError("a JSON list; write one JSON object per line (JSON Lines) instead", where=where)
    if len(keys & mooncake.REQUIRED) >= 2:
        return "mooncake"
    if keys & set(native.KEYS) or any(nearest(key, native.KEYS) for key in sorted(keys)):
        return "native"
    raise WorkloadError(f"no known format has the keys {show(sorted(keys))}; {READ}", where=where)


def head_keys(trace: TraceFile) -> tuple[str | None, set[str]]:
    """The ``schema`` and the keys in the first lines: of whole objects one level deep, of cut ones at any depth."""
    schema: str | None = None
    keys: set[str] = set()
    for line in trace.head_text.split("\n")[: HEAD_ROWS + 1]:
        try:
            row = json.loads(line)
        except (ValueError, RecursionError):
            continue
        for part in row if isinstance(row, list) else [row]:
            if isinstance(part, dict):
                schema = schema or str(part.get("schema"))
                ids = part.get("hash_ids")
                keys |= part.keys() | (ids.keys() if isinstance(ids, dict) else set())
    return schema, keys or set(KEY.findall(trace.head_text))


def csv_format(line: str, where: str) -> str:
    """The format that the column names of a header line tell."""
    names = set(split_header(line))
    found = next((name for telling, name in CSV_COLUMNS if telling <= names), None)
    if found is not None:
        return found
    if names >= OTHER_CSV:
        raise WorkloadError("this is a series of measurements over time, not a trace of requests", where=where)
    ours = {*plain_csv.REQUIRED, *plain_csv.PREFIX}
    theirs = {name.lower() for name in azure.COLUMNS}
    if not names & (ours | theirs) and any(name in line.lower() for name in (*plain_csv.REQUIRED, *theirs)):
        raise WorkloadError(f"columns are separated by commas, not as in {show(line)}", where=where)
    if names & theirs and not names & ours:
        return "azure"
    if names & ours or any(nearest(name, ours) for name in sorted(names)):
        return "csv"
    if names and all(map(is_value, names)):
        raise WorkloadError(f"no header: the first line is {show(line)}; {READ}", where=where)
    raise WorkloadError(f"no known format starts with {show(line)}; {READ}", where=where)


def is_value(text: str) -> bool:
    """Whether a cell looks like data rather than a column name."""
    return bool(text) and (text[0].isdigit() or text[0] in "+-.")
