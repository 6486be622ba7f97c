"""How the excerpts were made: ``python -m workloads.samples.build FOLDER`` rebuilds them from the original files.

FOLDER holds the originals under the names in README.md. The result is the same byte for byte once decompressed.
"""

from __future__ import annotations

import gzip
import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

HEADS = {
    "mooncake-conversation.jsonl": ("mooncake/conversation_trace.jsonl", 2500),
    "azure-conv-2023.csv": ("azure_2023/AzureLLMInferenceTrace_conv.csv", 2001),
    "azure-code-2023.csv": ("azure_2023/AzureLLMInferenceTrace_code.csv", 2001),
}
SESSIONS = ("0620", "0624", "0277", "0274")
AGENTIC = "agentic-sessions.jsonl"
# Sessions start one after another at this spacing, since the originals have no absolute start.
START_EVERY_S = 60


def build(originals: Path, folder: Path) -> None:
    """Write every excerpt into ``folder``."""
    for name, (source, lines) in HEADS.items():
        with (originals / source).open("rb") as stream:
            write(folder / f"{name}.gz", b"".join(islice(stream, lines)))
    rows = [row for number, name in enumerate(SESSIONS) for row in session_rows(originals, name, number)]
    rows.sort(key=lambda row: float(row["arrival_s"]))
    write(folder / f"{AGENTIC}.gz", "".join(json.dumps(row) + "\n" for row in rows).encode())


def write(path: Path, data: bytes) -> None:
    """Write compressed ``data``, the same bytes each time."""
    path.write_bytes(gzip.compress(data, 9, mtime=0))


def session_rows(originals: Path, name: str, number: int) -> Iterator[dict[str, Any]]:
    """The native rows of one kv-cache-tester session, its sub-agents included."""
    session = json.loads((originals / f"kv_cache_tester/trace_{name}.json").read_text())
    texts = Texts(name)
    for place, (agent, time_s, request) in enumerate(flat(session["requests"])):
        tail = request["in"] - session["block_size"] * len(request["hash_ids"])
        prompt = [[text, blocks * session["block_size"]] for text, blocks in texts.path(request["hash_ids"])]
        if tail:
            prompt.append([f"{name}/tail-{place}", tail])
        if request["out"] > 0:
            yield {
                "id": f"{name}-{place:03d}",
                "arrival_s": number * START_EVERY_S + time_s,
                "prompt": prompt,
                "output_tokens": request["out"],
                "session": f"{name}{agent}",
            }


def flat(requests: list[dict[str, Any]]) -> Iterator[tuple[str, float, dict[str, Any]]]:
    """(agent, seconds from the start, request) of a session; a sub-agent's times count from its own start."""
    for request in requests:
        if request["type"] == "subagent":
            for inner in request["requests"]:
                yield f"/{request['agent_id']}", request["t"] + inner["t"], inner
        else:
            yield "", request["t"], request


@dataclass(slots=True)
class Texts:
    """Names for paths in the tree of chained block ids.

    The first continuation seen of a block goes on with its text; any other starts a new text. A prompt is then a few
    spans, each the first blocks of a text, and two prompts share exactly the blocks they shared before.

    >>> texts = Texts("s")
    >>> texts.path([1, 2, 3]), texts.path([1, 2, 4, 5]), texts.path([1, 2, 3, 6])
    ([('s/0', 3)], [('s/0', 2), ('s/1', 2)], [('s/0', 4)])
    """

    name: str
    owner: dict[int, str] = field(default_factory=dict)
    continued: set[int] = field(default_factory=set)
    count: int = 0

    def path(self, ids: list[int]) -> list[tuple[str, int]]:
        """The spans (text, blocks) of a prompt with these chained ids."""
        spans: list[tuple[str, int]] = []
        before = 0
        for block in ids:
            if block not in self.owner:
                self.owner[block] = self.owner[before] if before and before not in self.continued else self.new_text()
                self.continued.add(before)
            text = self.owner[block]
            if spans and spans[-1][0] == text:
                spans[-1] = (text, spans[-1][1] + 1)
            else:
                spans.append((text, 1))
            before = block
        return spans

    def new_text(self) -> str:
        """The name of a text not used yet."""
        self.count += 1
        return f"{self.name}/{self.count - 1}"


if __name__ == "__main__":
    build(Path(sys.argv[1]), Path(__file__).parent)
