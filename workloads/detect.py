"""Which format a trace has, told from its first line and never from its name."""

from __future__ import annotations

import json

from workloads.errors import WorkloadError, nearest, show
from workloads.readers import azure, mooncake, native, plain_csv
from workloads.readers.csv_rows import split_header
from workloads.trace_file import TraceFile

READ = (
    "formats read: native JSON Lines, CSV with arrival_s,prompt_tokens,output_tokens[,prefix_id,prefix_tokens], "
    "Mooncake JSON Lines, Azure CSV"
)
# Keys (all present) that tell a published format which is not read, most telling first.
OTHER_JSON = (
    ({"schema"}, "a Dynamo trace with a header line"),
    ({"block_size", "requests"}, "a kv-cache-tester session file"),
    ({"input_lens", "start_times"}, "a vLLM benchmark result"),
    ({"prefix_tokens", "timing_events"}, "a TraceLab trace"),
    ({"spans"}, "an OpenTelemetry session file"),
    ({"resourceSpans"}, "an OpenTelemetry export"),
    ({"arrival_time_ns"}, "an LLMServingSim trace"),
    ({"sub_requests"}, "an LLMServingSim trace"),
    ({"timestamp", "requests"}, "an AIBrix trace"),
    ({"input", "output"}, "a text trace (LMCache, LMBenchmark)"),
)
OTHER_CSV = (
    ({"arrived_at", "num_prefill_tokens"}, "a Vidur trace"),
    ({"num_prefill_tokens", "num_decode_tokens"}, "a Vidur length file without arrivals"),
    ({"timestamp", "request tokens", "response tokens"}, "a BurstGPT trace"),
    ({"timestamp", "numimages"}, "an Azure multimodal trace"),
    ({"arrival_timestamp", "prompt_size"}, "a splitwise-sim trace"),
)


def detect_format(trace: TraceFile) -> str:
    """The name of the reader for ``trace``; raises `WorkloadError` naming the format when there is none."""
    number, line = trace.first_line
    where = f"{trace.label}:{number}"
    if line.startswith("{"):
        return json_format(line, where)
    if line.startswith("["):
        raise WorkloadError("a JSON list; write one JSON object per line (JSON Lines) instead", where=where)
    return csv_format(line, where)


def json_format(line: str, where: str) -> str:
    """``native`` or ``mooncake``, from the keys of a JSON line."""
    try:
        keys = set(json.loads(line))
    except (ValueError, RecursionError):
        keys = keys_in(line)
        if not keys:
            raise WorkloadError(
                f"not a JSON object on one line: {show(line)}; write one whole object per line", where=where
            ) from None
    for telling, what in OTHER_JSON:
        if telling <= keys:
            raise WorkloadError(f"this is {what}, which is not read; {READ}", where=where)
    if len(keys & mooncake.REQUIRED) >= 2:
        return "mooncake"
    if keys & set(native.KEYS):
        return "native"
    if any(nearest(key, native.KEYS) for key in sorted(keys)):
        return "native"
    raise WorkloadError(f"no known format has the keys {show(sorted(keys))}; {READ}", where=where)


def keys_in(line: str) -> set[str]:
    """The known keys in a JSON line that does not parse: cut, damaged, or longer than the head that was looked at."""
    names = (*native.KEYS, *mooncake.ALLOWED)
    return {name for name in names if f'"{name}":' in line.replace('" :', '":')}


def csv_format(line: str, where: str) -> str:
    """``csv`` or ``azure``, from the column names of a header line."""
    names = set(split_header(line))
    for telling, what in OTHER_CSV:
        if telling <= names:
            raise WorkloadError(f"this is {what}, which is not read; {READ}", where=where)
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
