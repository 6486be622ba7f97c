"""Record vLLM's answers to a few cases in `tests/golden/`, for machines without the oracle.

    python tests/oracle/record_golden.py [--python PYTHON]

A record that is there keeps its case; remove it to have its case drawn anew. A record is gzipped JSON Lines: first
``{"vllm": version, "command": ..., "case": {...}}``, then vLLM's lines.
"""

from __future__ import annotations

import argparse
import gzip
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent.parent))

from tests.oracle import build_venv
from tests.oracle.cases import (
    Case,
    draft_case,
    gemma3_27b,
    kind_case,
    random_case,
    rare_case,
    remote_case,
    session_cases,
    with_extras,
)
from tests.oracle.oracle import Oracle

FOUND = Path(__file__).resolve().parent / "found"
"""The smallest cases in which the project once differed from vLLM."""
GOLDEN = Path(__file__).resolve().parent.parent / "golden"
COMMAND = "python tests/oracle/record_golden.py"
RANDOM = {
    "preemptions-async": (1, 16),
    "pipeline-2-async": (1, 46),
    "pipeline-3-priority": (1, 152),
    "three-block-sizes": (1, 174),
    "retention-interval": (1, 149),
}
"""Random cases by what they show: (seed, index)."""
OTHER_KINDS = {
    "chunked-local-async": (1, 104),
    "mamba-align-checkpoint-retention": (1, 68),
    "mamba-none-window": (1, 10),
    "mla-window-pipeline-2": (1, 233),
}
"""The same of the cases with layers of every kind."""
RARE = {"cross-attention": (11, 114), "bounded-replay-async": (11, 1), "context-parallel": (11, 26)}
"""The same of the cases of what few models have."""
EXTRAS = {"events-resets-preemptions": (2, 77), "events-resets-states-async": (2, 380)}
"""The same of the cases with layers of every kind, with KV cache events and resets of the prefix cache."""

DRAFTS = {
    "mtp-states": (1, 7),
    "mtp-drop-async": (1, 1),
    "ngram-async": (1, 37),
    "drafts-pipeline-2-sync": (1, 57),
    "drafts-pipeline-3-sync": (2, 65),
}
"""The same of the cases with drafts."""
REMOTE = {"remote-windows": (3, 0), "remote-full": (3, 17)}
"""The same of the cases whose prompts are fetched from another engine."""
SESSIONS = {
    **{f"sessions-{index}": (index, 12) for index in (0, 3, 6, 7)},
    "eagle-async": (8, 3),
    "eagle-sync": (9, 3),
}
"""Cases of sessions by name: (index, of how many sessions the requests are taken)."""


def toy(**engine: Any) -> Case:
    """The design page's toy: 10 full and 20 window-32 layers, one request of 112 tokens in blocks of 16."""
    shape = {"num_kv_heads": 8, "head_size": 128, "dtype": "bfloat16"}
    layers = [
        {"kind": "full", "window": None, "count": 10, **shape},
        {"kind": "sliding_window", "window": 32, "count": 20, **shape},
    ]
    config = gemma3_27b(layers=layers, num_gpu_blocks=100, max_model_len=256, max_num_batched_tokens=256)
    config |= {"max_num_seqs": 8, "step_seconds": 0.01} | engine
    request = {"id": "a", "arrival_ns": 0, "prompt": [["x", 112]], "output": None, "output_tokens": 20}
    return {"name": "toy", "config": config, "requests": [request], "sample_every": 1}


def golden_cases() -> Iterator[tuple[str, Case]]:
    """The recorded cases by file name."""
    yield "toy-sync", toy(async_scheduling=False)
    yield "toy-async", toy()
    for name, (seed, index) in RANDOM.items():
        yield name, random_case(seed, index) | {"sample_every": 20}
    for name, (seed, index) in OTHER_KINDS.items():
        yield name, kind_case(seed, index) | {"sample_every": 20}
    for name, (seed, index) in RARE.items():
        yield name, rare_case(seed, index) | {"sample_every": 20}
    for name, (seed, index) in EXTRAS.items():
        yield name, with_extras(kind_case, seed, index) | {"sample_every": 20}
    for path in sorted(FOUND.glob("*.json")):
        yield f"found-{path.stem}", json.loads(path.read_text())
    for name, (seed, index) in DRAFTS.items():
        yield name, draft_case(seed, index) | {"sample_every": 20}
    for name, (seed, index) in REMOTE.items():
        yield name, remote_case(seed, index) | {"sample_every": 20, "resets": []}
    of_sessions = list(session_cases(1))
    for name, (index, count) in SESSIONS.items():
        case = of_sessions[index]
        first = [request for request in case["requests"] if int(request["id"][1:].split(".")[0]) < count]
        yield name, case | {"requests": first, "sample_every": 100}


def recorded(name: str) -> Case | None:
    """The case of a record that is there: it stays as it was drawn, whatever the generators draw today."""
    path = GOLDEN / f"{name}.jsonl.gz"
    if not path.exists() or name.startswith("found-"):
        return None
    case: Case = json.loads(gzip.decompress(path.read_bytes()).split(b"\n", 1)[0])["case"]
    return case


def main() -> None:
    """Write every record anew."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--python", default=build_venv.python_of(build_venv.folder(None)))
    with Oracle(parser.parse_args().python) as oracle:
        for name, drawn in golden_cases():
            case = recorded(name) or drawn
            lines = list(oracle.lines(case))
            head = {"vllm": lines[-1]["done"]["vllm"], "command": COMMAND, "case": case}
            text = "".join(json.dumps(line, separators=(",", ":")) + "\n" for line in [head, *map(_lasting, lines)])
            path = GOLDEN / f"{name}.jsonl.gz"
            path.write_bytes(gzip.compress(text.encode(), mtime=0))
            print(f"{path.name}: {len(lines)} lines, {path.stat().st_size:,} bytes, {lines[-1]['done']}")


def _lasting(line: dict[str, Any]) -> dict[str, Any]:
    """A line without the seconds, so that recording again gives the same file."""
    if "done" not in line:
        return line
    return {"done": {key: value for key, value in line["done"].items() if not key.endswith("seconds")}}


if __name__ == "__main__":
    main()
