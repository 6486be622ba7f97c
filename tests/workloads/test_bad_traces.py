"""What is no usable trace gets one line with its place, what is allowed and what to do: never a traceback."""

from __future__ import annotations

import gzip
import os
import re
import zlib
from collections import deque
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.workloads.examples import EXAMPLES
from workloads import WorkloadError, open_workload

CSV = "arrival_s,prompt_tokens,output_tokens\n"
PREFIX = "arrival_s,prompt_tokens,output_tokens,prefix_id,prefix_tokens\n"
AZURE = "TIMESTAMP,ContextTokens,GeneratedTokens\n"
ROW = '{"arrival_s": 0, "prompt_tokens": 5, "output_tokens": 2}\n'
MOONCAKE = '{"timestamp": 0, "input_length": 600, "output_length": 2, "hash_ids": [1, 2]}\n'


def native(**keys: Any) -> str:
    """One native row with some keys replaced by literal JSON; None removes a key."""
    row = {"arrival_s": "0", "prompt_tokens": "5", "output_tokens": "2", **keys}
    return "{" + ", ".join(f'"{key}": {value}' for key, value in row.items() if value is not None) + "}\n"


def mooncake(**keys: Any) -> str:
    """One Mooncake row with some keys replaced by literal JSON; None removes a key."""
    row = {"timestamp": "0", "input_length": "600", "output_length": "2", "hash_ids": "[1, 2]", **keys}
    return "{" + ", ".join(f'"{key}": {value}' for key, value in row.items() if value is not None) + "}\n"


def bomb(line: bytes, mebibytes: int) -> bytes:
    """A gzip file of ``line`` over and over."""
    packer = zlib.compressobj(9, wbits=31)
    block = line * ((1 << 20) // len(line))
    return b"".join(packer.compress(block) for _ in range(mebibytes)) + packer.flush()


# name: content, what the message must say (a pattern; the place is part of it)
BAD: dict[str, tuple[str | bytes, str]] = {
    # files that are no trace
    "empty": ("", r"t: the trace is empty \(0 bytes\)"),
    "only blank lines": ("\n \n\n", "t: the trace is empty"),
    "git-LFS pointer": ("version https://git-lfs.github.com/spec/v1\noid sha256:41ac\nsize 27\n", "git lfs pull"),
    "web page": ("\n<!DOCTYPE html><html>", "web page; download the raw file"),
    "web page without doctype": ("<HTML lang=en>", "web page"),
    "binary": (bytes(range(256)) * 10, "t: the trace is binary"),
    "binary further on": (CSV.encode() + b"0,1,1\n" * 20_000 + b"\0\0", "t:20002: a zero byte"),
    "not UTF-8": (CSV.encode() + b"0,\xff,1\n", "t:2: not UTF-8 text"),
    "UTF-16": ("arrival_s".encode("utf-16"), "UTF-16 text; save it as UTF-8"),
    "zip": (b"PK\x03\x04rest", "zip archive; unpack it"),
    "zstd": (b"\x28\xb5\x2f\xfdrest", "compressed with zstd; decompress it first"),
    "bzip2": (b"BZh91AY", "compressed with bzip2"),
    "xz": (b"\xfd7zXZ\0", "compressed with xz"),
    "Parquet": (b"PAR1\0\0", "t: the Parquet file is damaged"),
    "gzip twice": (gzip.compress(gzip.compress(CSV.encode())), "compressed twice"),
    "cut gzip": (gzip.compress(os.urandom(3000))[:-20], "t: the gzip file is cut: its end is missing"),
    "cut gzip late": (gzip.compress(CSV.encode() + b"0,1,1\n" * 50_000)[:-9], "gzip file is cut"),
    "damaged gzip": (gzip.compress(CSV.encode() + b"0,1,1\n")[:-8] + b"\0" * 8, r"gzip file is damaged \(incorrect"),
    "gzip of nothing": (gzip.compress(b""), "the trace is empty"),
    "gzip then other bytes": (gzip.compress(CSV.encode() + b"0,1,1\n") + b"rest", "gzip file is damaged"),
    "gzip bomb of rows": (gzip.compress(CSV.encode()) + bomb(b"0,1,1\n", 6), "swells more than 200 times"),
    "gzip bomb of blank lines": (gzip.compress(CSV.encode()) + bomb(b"\n", 6), "swells more than 200 times"),
    "gzip bomb of one line": (
        gzip.compress(CSV.encode()) + bomb(b"1", 20),
        "swells more than 200 times|longer than 16 MiB",
    ),
    "absurdly long line": (CSV + "0," + "1" * (17 << 20), "t:2: the line is longer than 16 MiB"),
    # formats that are not read
    "JSON list": ("[\n" + ROW, "t:1: a JSON list; write one JSON object per line"),
    "indented JSON": ('{\n  "arrival_s": 0\n}', "t:1: not valid JSON"),
    "kv-cache-tester": (
        '{"id": "a", "block_size": 64, "requests": []}',
        "t: the trace holds no request",
    ),
    "Dynamo": ('{"schema": "dynamo.agentic_mooncake", "version": 2}', "t:1: block_size is missing"),
    "AIBrix": ('{"timestamp": 6011, "requests": []}', "t: the trace holds no request"),
    "BurstGPT": (
        "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n5,x,1,0,3,y",
        "no request .1 rows with zero_output_tokens left out",
    ),
    "Vidur": ("arrived_at,num_prefill_tokens,num_decode_tokens\n0,1,-1", "t:2: num_decode_tokens is '-1'"),
    "Vidur's lengths": (
        "num_prefill_tokens,num_decode_tokens\n1,1\n",
        "no column of arrival times; give workload.arrival",
    ),
    "measurements": ("t,prompt_throughput,kv_cache_pct\n1,2,3\n", "t:1: this is a series of measurements"),
    "Azure multimodal": ("TIMESTAMP,NumImages,ContextTokens,GeneratedTokens\n", "t: the trace holds no request"),
    "prose": ("Dear all, please find the trace below\n", "t:1: no known format starts with"),
    "unknown JSON keys": ('{"foo": 1}\n', r"t:1: no known format has the keys \['foo'\]; formats read: native"),
    "no header": ("0.5,100,20\n", "t:1: no header: the first line is"),
    # native rows
    "cut JSON": (ROW + ROW[:-8], r"t:2: not valid JSON: .*is the file cut here\?"),
    "JSON NaN": (native(arrival_s="NaN"), "t:1: not valid JSON: NaN is not JSON"),
    "JSON infinity": (ROW + native(arrival_s="1e999"), "t:2: arrival_s is inf; allowed: seconds from 0 to"),
    "deep JSON": (ROW + '{"prompt": ' + "[" * 100_000 + "\n", "t:2: not valid JSON: nested too deeply"),
    "a row that is a list": (ROW + "[1]\n", "t:2: expected a JSON object, got"),
    "unknown key": (native(promt="[]"), r"t:1: unknown key 'promt' \(did you mean 'prompt'\?\)"),
    "misspelt first keys": ('{"arival_s": 0}\n', r"t:1: unknown key 'arival_s' \(did you mean 'arrival_s'\?\)"),
    "missing key": (native(output_tokens=None), "t:1: missing output_tokens; each row needs"),
    "missing prompt": (native(prompt_tokens=None), "t:1: missing prompt_tokens, or prompt"),
    "time in quotes": (native(arrival_s='"0.5"'), "t:1: arrival_s is '0.5'; allowed: a number of seconds"),
    "negative time": (native(arrival_s="-1"), "t:1: arrival_s is -1; allowed: seconds from 0 to"),
    "time backwards": (
        native(arrival_s="2") + native(arrival_s="1.5"),
        "t:2: arrival_s goes backwards: 1.5 s after 2 s",
    ),
    "zero prompt": (native(prompt_tokens="0"), "t:1: prompt_tokens is 0; allowed: whole numbers from 1 to"),
    "zero output": (native(output_tokens="0"), "t:1: output_tokens is 0"),
    "negative output": (native(output_tokens="-4"), "t:1: output_tokens is -4"),
    "absurd prompt": (native(prompt_tokens="1000000001"), "t:1: prompt_tokens is 1000000001"),
    "huge integer": (native(prompt_tokens="9" * 5000), "t:1: not valid JSON"),
    "fraction of a token": (native(prompt_tokens="5.0"), r"t:1: prompt_tokens is 5\.0"),
    "true as a number": (native(prompt_tokens="true"), "t:1: prompt_tokens is True"),
    "max below output": (native(max_tokens="1"), r"t:1: max_tokens is 1; allowed: output_tokens \(2\) or more"),
    "lengths that differ": (native(prompt='[["a", 4]]'), "t:1: prompt_tokens is 5; allowed: the sum .* 4"),
    "empty prompt": (native(prompt="[]", prompt_tokens=None), "t:1: prompt is .*; allowed: a list of one or more"),
    "flat span": (native(prompt='["a", 4]', prompt_tokens=None), r"t:1: a span of prompt is 'a'"),
    "empty span": (native(prompt='[["a", 0]]', prompt_tokens=None), "t:1: the length of a span of prompt is 0"),
    "content of a wrong type": (native(prompt="[[1.5, 5]]"), r"t:1: the content of a span of prompt is 1\.5"),
    "spans of too many tokens": (native(prompt='[["a", 900000000], ["b", 900000000]]'), "the length of prompt is 18"),
    "duplicate ids": (native(id='"a"') + native(id='"b"') + native(id='"a"'), "t:3: id 'a' comes twice"),
    "an id like a row number": (native(id='"1"') + native(), "t:2: id '1' comes twice"),
    "empty id": (native(id='""'), "t:1: id is empty"),
    "id of a wrong type": (native(id="[1]"), r"t:1: id is \[1\]; allowed: a string"),
    "half a character": (native(id='"\\ud800"'), "t:1: id is"),
    "salt of a wrong type": (native(cache_salt="false"), "t:1: cache_salt is False"),
    "skip_cache of a wrong type": (native(skip_cache="1"), "t:1: skip_cache is 1; allowed: true or false"),
    "encoder_tokens of nothing": (native(encoder_tokens="0"), "t:1: encoder_tokens is 0"),
    "priority out of range": (native(priority="1e3"), r"t:1: priority is 1000\.0; allowed: whole numbers of 32 bits"),
    "waiting without a session": (native(think_s="1", turn="1"), "t:1: think_s is 1; allowed: beside a session and a"),
    "waiting in the first turn": (native(think_s="1", session="1"), "t:1: think_s is 1; allowed: beside a session and"),
    "waiting for ever": (native(think_s="1e10", session="1", turn="1"), "t:1: think_s is 1.*; allowed: seconds from 0"),
    "turns out of order": (
        native(session='"s"') + "".join(native(session='"s"', think_s="1", turn=turn) for turn in ("2", "1")),
        "session 's': turn 1 stands below a later one; sort its rows by turn",
    ),
    "waiting for nobody": (native(think_s="1", session="1", turn="1"), "'0' waits for an answer that nobody asked"),
    # CSV rows
    "bad column": (
        "arrival_s,prompt_token,output_tokens\n",
        r"t:1: unknown column 'prompt_token' \(did you mean 'prompt_t",
    ),
    "missing column": ("arrival_s,prompt_tokens\n0,1\n", "t:1: the header lacks output_tokens"),
    "a column twice": ("arrival_s,prompt_tokens,output_tokens,arrival_s\n", "t:1: column 'arrival_s' comes twice"),
    "semicolons": ("arrival_s;prompt_tokens;output_tokens\n0;1;1\n", "t:1: columns are separated by commas"),
    "prefix without its tokens": (
        "arrival_s,prompt_tokens,output_tokens,prefix_id\n",
        "prefix_id and prefix_tokens go tog",
    ),
    "header alone": (CSV, "t: the trace holds no request"),
    "cut row": (CSV + "0,1,1\n1,5", r"t:3: the row has 2 columns, the header 3 .*cut here\?"),
    "row too wide": (CSV + "0,1,1,9\n", "t:2: the row has 4 columns"),
    "quote over lines": (CSV + '0,"1\n1,2",3\n', "t:2: a quoted value goes on|t:2: the row has|t:2: not a CSV row"),
    "open quote": (CSV + '0,1,"1\n', "t:2: not a CSV row"),
    "time is no number": (CSV + "0,1,1\nsoon,1,1\n", "t:3: arrival_s is 'soon'; allowed: numbers"),
    "time is NaN": (CSV + "nan,1,1\n", "t:2: arrival_s is 'nan'; allowed: seconds"),
    "time beyond bounds": (CSV + "1e12,1,1\n", "t:2: arrival_s is '1e12'"),
    "time with underscores": (CSV + "1_0,1,1\n", "t:2: arrival_s is '1_0'; allowed: numbers"),
    "CSV time backwards": (CSV + "0.3,1,1\n0.2,1,1\n", "t:3: arrival_s goes backwards.*sort the rows"),
    "empty cell": (CSV + "0,,1\n", "t:2: prompt_tokens is empty; allowed: whole numbers"),
    "decimal tokens": (CSV + "0,512.0,1\n", r"t:2: prompt_tokens is '512\.0'; allowed: whole numbers"),
    "64 bits are not enough": (CSV + "0,99999999999999999999,1\n", "t:2: prompt_tokens is '9{20}'"),
    "prefix longer than the prompt": (
        PREFIX + "0,5,1,p,6\n",
        "t:2: prefix_tokens is 6; allowed: 0 to the prompt_tokens",
    ),
    "prefix without a name": (PREFIX + "0,5,1,,3\n", "t:2: prefix_id is empty"),
    # Mooncake rows
    "wrong block size": (
        mooncake() + mooncake(input_length="1100"),
        "t:2: 2 hash_ids do not cover input_length 1100 in 512",
    ),
    "no block size fits": (
        mooncake(input_length="6400"),
        r"t:1: 2 hash_ids do not cover .*512-token blocks \(13 ids\) or 16",
    ),
    "block sizes that differ": (mooncake(block_size="512") + mooncake(block_size="16"), "t:2: block_size is 16"),
    "block size in some rows": (mooncake(block_size="512") + mooncake(), "t:2: block_size is None"),
    "ids of a wrong type": (mooncake(hash_ids='["a", 2]'), "t:1: hash_ids is 'a'; allowed: a list of whole numbers"),
    "ids as an object": (mooncake(hash_ids="{}"), r"t:1: hash_ids is \{\}"),
    "ids beyond 64 bits": (mooncake(hash_ids=f"[1, {1 << 64}]"), "t:1: hash_ids is 184467"),
    "seconds, then milliseconds": (
        mooncake(timestamp="1731600000.5") + mooncake(timestamp="1731600000700"),
        "t:2: timestamp is 1731600000700, no date in seconds like the ones before: the trace mixes time units",
    ),
    "neither time nor date": (mooncake(timestamp="99999999999"), "t:1: timestamp is 99999999999; allowed: a time from"),
    "negative input": (
        mooncake(input_length="-5", hash_ids="[]"),
        "t:1: input_length is -5; allowed: whole numbers from 0",
    ),
    "Mooncake time backwards": (mooncake(timestamp="5") + mooncake(timestamp="4"), "t:2: timestamp goes backwards"),
    "closed-loop dialect": (mooncake(delay="5"), "t:1: unknown key 'delay'"),
    "all rows zero": (mooncake(output_length="0"), "holds no request .1 rows with zero_output_tokens left out"),
    # Azure rows
    "not a date": (AZURE + "yesterday,1,1\n", "t:2: TIMESTAMP is 'yesterday'; allowed: YYYY"),
    "no such day": (AZURE + "2023-02-30 00:00:00,1,1\n", "t:2: TIMESTAMP is .*; allowed: a date and time that exist"),
    "Azure time backwards": (AZURE + "2023-11-16 18:00:01,1,1\n2023-11-16 18:00:00,1,1\n", "t:3: TIMESTAMP goes backw"),
    "Azure negative": (
        AZURE + "2023-11-16 18:00:01,-1,1\n",
        "t:2: ContextTokens is '-1'; allowed: whole numbers from 0",
    ),
    "Azure header": ("TIMESTAMP,ContextTokens,GenTokens\n", r"t:1: unknown column 'gentokens' \(did you mean 'Gen"),
}


@pytest.mark.parametrize("name", BAD)
def test_a_bad_trace_gets_one_line(name: str, write: Any, opened: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("workloads.inflate.FREE_BYTES", 4 << 20)
    content, expected = BAD[name]
    path = write(content, "t")
    with pytest.raises(WorkloadError) as caught:
        deque(opened(trace="t").batches(100), maxlen=0)
    message = str(caught.value).replace(str(path), "t")
    assert re.search(expected, message), message
    assert "\n" not in message
    assert len(message) < 500
    assert caught.value.exit_code == 2


GOOD = {
    "csv": (CSV + "0,1,1\n1.5,20,3\n"),
    "prefix": (PREFIX + "0,10,1,p,5\n1,12,1,,\n"),
    "azure": (AZURE + "2023-11-16 18:00:01.1234567,7,1\n"),
    "native": (native(id='"a"', prompt='[["x", 5]]') + native(output='[["y", 2]]')),
    "mooncake": (mooncake() + mooncake(timestamp="5")),
    **{name: text for name, (text, _) in EXAMPLES.items()},
}


@settings(max_examples=400, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_no_bytes_whatever_raise_anything_else(data: st.DataObject, tmp_path: Path) -> None:
    name = data.draw(st.sampled_from(sorted(GOOD)))
    content = bytearray(GOOD[name].encode())
    for _ in range(data.draw(st.integers(1, 4))):
        place = data.draw(st.integers(0, len(content)))
        width = data.draw(st.integers(0, 6))
        patch = data.draw(
            st.sampled_from([b"", b"-", b"e", b"9" * 30, b"\n", b'"', b",", b"[", b"\xff", b"null", b"_", b"1"])
        )
        content[place : place + width] = patch
    packed = gzip.compress(bytes(content)) if data.draw(st.booleans()) else bytes(content)
    (tmp_path / "t").write_bytes(packed[: len(packed) - data.draw(st.sampled_from([0, 0, 0, 5]))])
    try:
        for batch in open_workload({"trace": "t", **EXAMPLES.get(name, ("", {}))[1]}, tmp_path, 0).batches(2):
            assert (batch.prompt_tokens >= 1).all()
            assert (batch.output_tokens >= 1).all()
    except WorkloadError as error:
        message = str(error)
        assert message.startswith((str(tmp_path / "t"), "workload", "request ", "session "))
