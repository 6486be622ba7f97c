"""Flags of vLLM where people leave them in a paste: a shell line, a docker or compose file, a list of arguments."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any, Final

from sim.errors import InputError
from sim.vllm_flags import read_arguments

_SERVE: Final = re.compile(r"\bvllm serve\s+(.+)$|-m vllm\.entrypoints\.(?:openai\.api_server|cli\.main serve)\s*(.*)$")
_IMAGE: Final = re.compile(r"\b(?:run|exec)\b.*?\S*vllm\S*:?\S* (.*--\w.*)$")
_LISTED: Final = re.compile(r"^(?:- +)?['\"]?(--[a-z][\w.-]*(?:[ =].*)?)$")


def command_of(line: str) -> tuple[str | None, dict[str, Any]] | None:
    """The model and the flags of a command that starts a server, None where ``line`` is none.

    Flags that cannot be read are left out.

    >>> command_of("$ vllm serve org/model -tp 2 --of-a-fork 3 --max-model-len=32k")
    ('org/model', {'tensor_parallel_size': 2, 'max_model_len': 32000})
    >>> command_of("        - --kv-cache-dtype=fp8")
    (None, {'kv_cache_dtype': 'fp8'})
    """
    if found := _SERVE.search(line) or _IMAGE.search(line):
        text = next(group for group in found.groups() if group is not None)
    elif found := _LISTED.search(line.strip().rstrip(",\\'\" ")):
        text = found[1]
    else:
        return None
    model: str | None = None
    flags: dict[str, Any] = {}
    for positional, given in _read(_words(text)):
        model = model or positional
        flags |= given
    named = flags.pop("model", None)
    return model or (named if isinstance(named, str) else None), flags


def _words(text: str) -> list[str]:
    try:
        return shlex.split(text.replace("\\ ", " "), comments=True)
    except ValueError:  # a quote that is not closed: the line was cut
        return text.split()


def _read(words: Sequence[str]) -> Iterator[tuple[str | None, dict[str, Any]]]:
    """One flag after the other with the words behind it, so that an unknown one does not hide the rest."""
    starts = [at for at, word in enumerate(words) if re.match(r"--?[A-Za-z]", word)]
    ends = [*starts, len(words)]
    if ends[0]:
        yield words[0], {}
    for start, end in pairwise(ends):
        try:
            positional, given = read_arguments(words[start:end])
        except InputError:
            continue
        yield (positional[0] if positional else None), {item.flag.key: item.value for item in given}
