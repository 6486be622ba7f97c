"""Bad traces: files that are none, rows that cannot be, and gzip that swells."""

from __future__ import annotations

import gzip

from tests.cli.bad_cases import ROW, TRACE, Bad, trace

CSV = "arrival_s,prompt_tokens,output_tokens\n"
MOONCAKE = '{"timestamp": %d, "input_length": %d, "output_length": 5, "hash_ids": [%s]}\n'
AZURE = "TIMESTAMP,ContextTokens,GeneratedTokens\r\n2023-11-16 18:17:03.9799600,4808,10\r\n"


def row(**changes: object) -> str:
    """A second row with some keys changed, after a good first one."""
    values = {"id": '"b"', "arrival_s": 1, "prompt_tokens": 100, "output_tokens": 4, **changes}
    return ROW % ("a", 0) + "{" + ", ".join(f'"{key}": {value}' for key, value in values.items()) + "}\n"


FILES = (
    trace("missing trace", None, "trace.jsonl"),
    Bad("a trace that is a folder", ("trace.jsonl",), files={"trace.jsonl": None, "trace.jsonl/x": ""}),
    trace("empty trace", "", "trace.jsonl", "empty"),
    trace("blank trace", "\n\n  \n", "trace.jsonl"),
    trace("binary trace", bytes(range(256)) * 8, "trace.jsonl"),
    trace("truncated trace", TRACE[:-20], "trace.jsonl:2"),
    trace("a git-LFS pointer", "version https://git-lfs.github.com/spec/v1\n", "git-LFS"),
    trace("cut gzip", gzip.compress(TRACE.encode() * 50)[:-30], "cut", file="trace.jsonl.gz"),
    trace("damaged gzip", b"\x1f\x8b\x08\x00" + b"\x55" * 40, "gzip", file="trace.jsonl.gz"),
    trace("prose", "Dear reader,\nthis is a letter.\n", "trace.txt", file="trace.txt"),
    trace("a header with a carriage return inside", "a,b\rc,d\n1,2,3\n", "trace.csv:1", file="trace.csv"),
    trace("a CSV without the columns", "a,b,c\n1,2,3\n", "trace.csv:1", file="trace.csv"),
)
ROWS = (
    trace("not JSON", ROW % ("a", 0) + "{nonsense}\n", "trace.jsonl:2"),
    trace("a JSON list", ROW % ("a", 0) + "[1, 2]\n", "trace.jsonl:2"),
    trace("unknown row key", row(promt_tokens=3), "trace.jsonl:2", "prompt_tokens"),
    trace("missing row key", ROW % ("a", 0) + '{"id": "b", "arrival_s": 1, "output_tokens": 1}\n', "trace.jsonl:2"),
    trace("negative length", row(prompt_tokens=-5), "trace.jsonl:2", "-5"),
    trace("zero length", row(prompt_tokens=0), "trace.jsonl:2"),
    trace("zero output", row(output_tokens=0), "trace.jsonl:2"),
    trace("absurd length", row(prompt_tokens=10**15), "trace.jsonl:2"),
    trace("a length in words", row(prompt_tokens='"many"'), "trace.jsonl:2", "many"),
    trace("a fraction of a token", row(prompt_tokens=1.5), "trace.jsonl:2", "1.5"),
    trace("negative time", row(arrival_s=-1), "trace.jsonl:2"),
    trace("no finite time", row(arrival_s="NaN"), "trace.jsonl:2"),
    trace("times backwards", ROW % ("a", 5) + ROW % ("b", 1), "trace.jsonl:2", "backwards"),
    trace("duplicate ids", ROW % ("a", 0) + ROW % ("a", 1), "trace.jsonl:2", "a"),
    trace("spans that are none", row(prompt='["x", 5]'), "trace.jsonl:2"),
    trace("max_tokens below the output", row(max_tokens=2), "trace.jsonl:2", "max_tokens"),
    trace("CSV with a short row", CSV + "0,100,4\n1,100\n", "trace.csv:3", file="trace.csv"),
    trace("CSV with a word", CSV + "0,100,4\n1,ten,4\n", "trace.csv:3", "ten", file="trace.csv"),
    trace("a wrong block size", MOONCAKE % (0, 500, "1") + MOONCAKE % (3, 99_000, "2, 3"), "trace.jsonl:2"),
    trace("Azure with a bad time", AZURE + "16/11/2023,3,4\r\n", "trace.csv:3", file="trace.csv"),
)
CASES = (*FILES, *ROWS)
