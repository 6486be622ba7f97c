"""Texts as tokens: counted by a tokenizer where one is installed and named, estimated where that is asked for."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from workloads.content import PIECE, TOKENS, hash_text
from workloads.errors import WorkloadError
from workloads.options import ReadOptions
from workloads.readers.rows import Text, text, token_text

GROUP = 16
NEEDED = (
    "the trace holds texts, not token counts: set workload.tokenizer to a tokenizer.json (pip install tokenizers), or "
    "workload.chars_per_token: 4 for an estimate"
)


class Tokens:
    """Turns texts into spans of 16 tokens each, named by their content: equal starts of texts are shared."""

    def __init__(self, options: ReadOptions, label: str) -> None:
        self._per_token = options.chars_per_token
        self._encode = encoder(options.tokenizer) if options.tokenizer else None
        self._label = label

    @property
    def known(self) -> bool:
        """Whether texts can be counted at all."""
        return self._encode is not None or self._per_token is not None

    @property
    def how(self) -> str:
        """How tokens are counted, in words."""
        if self._encode is not None:
            return "counted by the tokenizer, without a chat template"
        return f"estimate: {self._per_token:g} characters a token" if self._per_token else "as the trace says"

    def of(self, string: str) -> Text:
        """The spans of a text; raises `WorkloadError` when nothing says how to count."""
        if self._encode is not None:
            return token_text(self._encode(string), GROUP) if string else text([], [])
        if self._per_token is None:
            raise WorkloadError(NEEDED, where=self._label)
        step = max(round(GROUP * self._per_token), 1)
        pieces = [string[i : i + step] for i in range(0, len(string), step)]
        tokens = [GROUP] * len(pieces)
        if pieces:
            tokens[-1] = min(max(round(len(pieces[-1]) / self._per_token), 1), GROUP)
        return text([hash_text(f"{PIECE}/{TOKENS}/{piece}") for piece in pieces], tokens)


def encoder(name: str) -> Callable[[str], list[int]]:
    """A function from text to token ids, of a ``tokenizer.json`` or the folder it lies in."""
    path = Path(name).expanduser()
    path = path / "tokenizer.json" if path.is_dir() else path
    where = "workload.tokenizer"
    if not path.is_file():
        raise WorkloadError(f"no such file: {str(path)!r}; give a tokenizer.json or its folder", where=where)
    try:
        library: Any = importlib.import_module("tokenizers")
    except ImportError:
        raise WorkloadError(
            "the library tokenizers is not installed: pip install tokenizers, or use workload.chars_per_token",
            where=where,
        ) from None
    try:
        tokenizer = library.Tokenizer.from_file(str(path))
    except Exception as error:  # noqa: BLE001  (the library raises bare exceptions)
        raise WorkloadError(f"{str(path)!r} is no tokenizer: {error}", where=where) from None
    return lambda string: list(tokenizer.encode(string, add_special_tokens=False).ids)
