"""What a bad-input case is: files to lay out, a command line, and what the one line must say."""

from __future__ import annotations

import gzip
from collections.abc import Mapping
from dataclasses import dataclass, field

SCENARIO = """\
name: case
question: Does it fit?
model:
  layers:
    - {kind: full, count: 2}
    - {kind: sliding_window, count: 4, window: 32}
  num_kv_heads: 1
  head_size: 64
  max_model_len: 1024
engine:
  max_num_seqs: 8
memory:
  num_gpu_blocks_override: 400
workload:
  trace: trace.jsonl
step_time: {kind: constant, seconds: 0.01}
"""
ROW = '{"id": "%s", "arrival_s": %s, "prompt_tokens": 100, "output_tokens": 4}\n'
TRACE = ROW % ("a", 0) + ROW % ("b", 1)


@dataclass(frozen=True)
class Bad:
    """One bad input. ``says`` must all appear in the one line; a file given as None is not there."""

    name: str
    says: tuple[str, ...]
    argv: tuple[str, ...] = ("run", "case.yaml", "--no-figures", "--out", "out")
    files: Mapping[str, str | bytes | None] = field(default_factory=dict)
    code: int = 2

    def layout(self) -> dict[str, bytes]:
        """The files of the case, on top of a good scenario and a good trace."""
        files = {"case.yaml": SCENARIO, "trace.jsonl": TRACE, **self.files}
        return {
            name: text if isinstance(text, bytes) else text.encode() for name, text in files.items() if text is not None
        }


def scenario(name: str, old: str, new: str, *says: str) -> Bad:
    """A case made by changing one place of the good scenario."""
    assert SCENARIO.count(old) == 1, f"{name}: {old!r} does not mark one place"
    return Bad(name, says, files={"case.yaml": SCENARIO.replace(old, new)})


def engine(name: str, keys: str, *says: str) -> Bad:
    """A case made by other engine keys."""
    return scenario(name, "engine:\n  max_num_seqs: 8", f"engine: {{{keys}}}", *says)


def trace(name: str, content: str | bytes | None, *says: str, file: str = "trace.jsonl") -> Bad:
    """A case made by another trace; ``file`` gives it another name."""
    text = SCENARIO.replace("trace.jsonl", file)
    return Bad(name, says, files={"case.yaml": text, "trace.jsonl": None, file: content})


def command(name: str, argv: str, *says: str, **files: str | None) -> Bad:
    """A case made by another command line."""
    return Bad(name, says, argv=tuple(argv.split()), files={f"{key}.yaml": text for key, text in files.items()})


def settings(name: str, change: str, *says: str) -> Bad:
    """A case made by one ``--set``."""
    return Bad(name, says, argv=(*Bad("", ()).argv, "--set", change))


def gzip_bomb() -> bytes:
    """About 130 kB that swell to a good row and 128 MiB of blank lines."""
    return gzip.compress((ROW % ("a", 0)).encode() + b"\n" * (128 << 20), 6, mtime=0)
