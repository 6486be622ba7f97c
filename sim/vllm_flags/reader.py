"""Arguments of ``vllm serve``, read as vLLM reads them: dashes or underscores, ``=``, ``--flag.key value``, JSON."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sim.errors import InputError
from sim.scenario.numbers import human_readable_int
from sim.vllm_flags.table import Flag, find_flag

_NUMBER = re.compile(r"-\d+(\.\d*)?|-\.\d+")
_LEVEL = re.compile(r"-O=?(\S+)")


@dataclass(frozen=True, slots=True)
class Given:
    """One flag as given: which, its value as vLLM would take it, and how it was written."""

    flag: Flag
    value: Any
    written: str


@dataclass(slots=True)
class _Words:
    """Words still to be read."""

    words: list[str]
    at: int = 0

    def next_value(self) -> str | None:
        """The next word if it is a value, not a flag."""
        if self.at < len(self.words) and not _is_flag(self.words[self.at]):
            self.at += 1
            return self.words[self.at - 1]
        return None


def _is_flag(word: str) -> bool:
    return word.startswith("-") and word != "-" and not _NUMBER.fullmatch(word)


def read_arguments(arguments: Sequence[str], ours: Sequence[str] = ()) -> tuple[list[str], list[Given]]:
    """``(positional words, flags)`` in the order given; a flag given twice stays twice, and the last one counts.

    ``ours`` are flags of the command itself, see ``find_flag``. Raises InputError for unknown flags, values of the
    wrong type, and flags without their value.

    >>> words, given = read_arguments(["m", "--max_model_len=32k", "-tp", "2", "--no-enable-prefix-caching"])
    >>> words, [(item.flag.key, item.value) for item in given]
    (['m'], [('max_model_len', 32000), ('tensor_parallel_size', 2), ('enable_prefix_caching', False)])
    >>> read_arguments(["-sc.method", "mtp", "-sc.num_speculative_tokens=1"])[1][0].value
    {'method': 'mtp', 'num_speculative_tokens': 1}
    """
    words = _Words(_with_levels(arguments))
    positional: list[str] = []
    given: list[Given] = []
    nested: dict[str, Given] = {}
    while words.at < len(words.words):
        word = words.words[words.at]
        words.at += 1
        if not _is_flag(word):
            positional.append(word)
            continue
        spelling, separator, text = word.partition("=")
        name, dot, path = spelling.partition(".")
        flag, full = find_flag(name.replace("_", "-") if name.startswith("--") else name, ours)
        attached = text if separator else None
        if dot:
            _nest(flag, path, _required(spelling, attached, words), nested, given)
        else:
            given.append(Given(flag, _value(flag, full, spelling, attached, words), spelling))
    return positional, given


def _with_levels(arguments: Sequence[str]) -> list[str]:
    """``-O3`` is ``--optimization-level 3`` (vllm 0.33.0 utils/argparse_utils.py:384)."""
    words: list[str] = []
    for argument in arguments:
        level = _LEVEL.fullmatch(argument)
        if argument == "-O":
            words.append("--optimization-level")
        elif level:
            words += ["--optimization-level", level[1]]
        else:
            words.append(argument)
    return words


def _nest(flag: Flag, path: str, text: str, nested: dict[str, Given], given: list[Given]) -> None:
    """Put one dotted key into the flag's mapping; all dotted keys of a flag make one mapping."""
    if flag.value != "json":
        raise InputError(f"{flag.name} takes no keys of its own", where=f"{flag.name}.{path}")
    if flag.name not in nested:
        nested[flag.name] = Given(flag, {}, flag.name)
        given.append(nested[flag.name])
    *parents, last = path.removesuffix("+").split(".")
    target = nested[flag.name].value
    for key in parents:
        target = target.setdefault(key, {})
    target[last] = text.split(",") if path.endswith("+") else _loose(text)


def _loose(text: str) -> Any:
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        try:
            return human_readable_int(text)
        except ValueError:
            return text


def _value(flag: Flag, full: str, spelling: str, attached: str | None, words: _Words) -> Any:
    if flag.value in ("switch", "set"):
        if attached is not None:
            raise InputError(f"takes no value, got {attached!r}; leave it out, or write --no-…", where=spelling)
        return full not in flag.negations
    if flag.value == "list":
        return _list(spelling, attached, words)
    if flag.value == "maybe":
        return attached if attached is not None else words.next_value() or True
    return typed(flag, _required(spelling, attached, words), spelling)


def _list(spelling: str, attached: str | None, words: _Words) -> list[str]:
    items = [_required(spelling, attached, words)]
    while attached is None and (item := words.next_value()) is not None:
        items.append(item)
    return items


def _required(spelling: str, attached: str | None, words: _Words) -> str:
    text = attached if attached is not None else words.next_value()
    if text is None:
        raise InputError("expected a value after it; give one", where=spelling)
    return text


def typed(flag: Flag, text: str, spelling: str) -> Any:
    """``text`` as the type the flag wants, None for none where that is allowed; InputError where it is of another type.

    vLLM takes ``None`` for none; ``none`` is taken too, but where it is a word of its own.
    """
    if flag.optional and (text in ("", "None") or (text == "none" and flag.value in ("int", "human_int"))):
        return None
    try:
        if flag.value == "int":
            return int(text)
        if flag.value == "human_int":
            return -1 if flag.key == "max_model_len" and text.lower() in ("-1", "auto") else human_readable_int(text)
        if flag.value == "float":
            return float(text)
        return json.loads(text) if flag.value == "json" and text.lstrip()[:1] in "{[" else text
    except json.JSONDecodeError as error:
        raise InputError(
            f"got {text!r}, which is no JSON ({error.msg}); quote it as a whole", where=spelling
        ) from error
    except ValueError as error:
        wanted = {"int": "a whole number", "float": "a number"}.get(
            flag.value, "a whole number, or one like 32k or 32K"
        )
        raise InputError(f"got {text!r}; expected {wanted}", where=spelling) from error
