"""From pydantic's findings to one line that names the place, what was given, what is allowed and what to do."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from sim.engine_config.unmodelled import unmodelled
from sim.errors import InputError, nearest
from sim.scenario.schema import ScenarioKeys
from sim.scenario.strict_yaml import Document, KeyPath

K = TypeVar("K", bound=BaseModel)

_EXPECTED = {
    "int_type": "expected a whole number",
    "int_from_float": "expected a whole number",
    "float_type": "expected a number",
    "bool_type": "expected true or false",
    "string_type": "expected text",
    "dict_type": "expected a mapping of keys",
    "list_type": "expected a list",
    "model_type": "expected a mapping of keys",
    "finite_number": "expected a finite number",
}


def error_at(document: Document, path: KeyPath, message: str) -> InputError:
    """An InputError for the key at ``path``: ``file:line: dotted.key: message``.

    A key set on the command line is named once, as the flag that set it.
    """
    place = document.place(path)
    key = ".".join(map(str, path))
    said = place.startswith("--") and not key.startswith(f"{place.partition(' ')[2]}.")
    return InputError(message if said or not key else f"{key}: {message}", where=place)


def check(schema: type[K], value: Any, document: Document, path: KeyPath = ()) -> K:
    """``value`` (found at ``path``) as an instance of ``schema``; InputError for the first thing wrong with it."""
    if not isinstance(value, Mapping):
        raise error_at(document, path, f"expected a mapping of keys, got {shown(value)}")
    try:
        return schema.model_validate(value)
    except ValidationError as error:
        findings = error.errors(include_url=False)
        # An unknown key comes first: it is often the misspelling of one reported missing.
        first = min(findings, key=lambda found: found["type"] != "extra_forbidden")
        message = _message(first, schema)
        if len(findings) > 1:
            message += f" (and {len(findings) - 1} more)"
        raise error_at(document, path + _location(first), message) from error


@contextmanager
def located(document: Document) -> Iterator[None]:
    """Give an error that names a key path of the scenario (``model.layers[0].count``) the file and line of that key."""
    try:
        yield
    except Exception as error:
        # Workloads have an error class of their own, with the same attributes; it is not imported to be recognised.
        path = key_path(getattr(error, "where", None), str(getattr(error, "message", "")))
        if path is not None and path[0] in ScenarioKeys.model_fields:
            place = document.place(path)
            vars(error)["where"] = place if place.startswith("--") else f"{place}: {vars(error)['where']}"
            error.args = (str(error),)
        raise


def key_path(where: str | None, message: str = "") -> KeyPath | None:
    """The path meant by a dotted ``where``, and by a message that opens with an unknown key below it.

    >>> key_path("model.layers[0]", "unknown key 'widow'; allowed: window")
    ('model', 'layers', 0, 'widow')
    """
    if where is None or not re.fullmatch(r"\w+((\.[\w-]+)|(\[\d+\]))*", where):
        return None
    parts = re.findall(r"[\w-]+", where)
    path = tuple(int(part) if f"[{part}]" in where else part for part in parts)
    unknown = re.match(r"unknown key '([^']+)'", message)
    return (*path, unknown.group(1)) if unknown else path


def unknown_key(key: str, allowed: Iterable[str]) -> str:
    """What to say about a key that is not there.

    >>> unknown_key("max_num_seq", ["max_num_seqs", "block_size"])
    "unknown key; nearest is 'max_num_seqs'; allowed are block_size, max_num_seqs"
    """
    names = sorted(allowed)
    plain = key.replace("-", "_").lower()
    if plain in names:
        return f"unknown key; write it {plain!r}, with underscores"
    if "max_num_seqs" in names and (why := unmodelled(plain)):
        return why
    close = nearest(plain, names)
    return f"unknown key; {f'nearest is {close!r}; ' if close else ''}allowed are {', '.join(names)}"


def shown(value: Any) -> str:
    """A value as it may stand in a message: short, and without line breaks.

    >>> shown("x" * 100)
    "'xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx..."
    """
    text = {None: "null (nothing)", True: "true", False: "false"}.get(value) if _is_simple(value) else None
    text = text or repr(value)
    return text if len(text) <= 41 else text[:38] + "..."


def _is_simple(value: Any) -> bool:
    return value is None or isinstance(value, bool)


def _location(found: ErrorDetails) -> KeyPath:
    return tuple(part for part in found["loc"] if part != "[key]")


def _message(found: ErrorDetails, schema: type[BaseModel]) -> str:
    kind, given, context = found["type"], shown(found["input"]), found.get("ctx", {})
    if kind == "extra_forbidden":
        return unknown_key(str(found["loc"][-1]), schema.model_fields)
    if kind == "missing":
        return "is missing; give it"
    if kind == "literal_error":
        close = nearest(str(found["input"]), re.findall(r"'([^']+)'", context["expected"]))
        return f"got {given}; allowed are {context['expected']}{f'; nearest is {close!r}' if close else ''}"
    if kind == "string_pattern_mismatch":
        return f"got {given}; letters, digits, '.', '_' and '-' are allowed, beginning with a letter or digit"
    if kind in _EXPECTED:
        return f"{_EXPECTED[kind]}, got {given}"
    if kind == "value_error":
        return f"got {given}; {context['error']}"
    # pydantic words ranges well: "Input should be greater than or equal to 1".
    return f"got {given}; {found['msg'].replace('Input should be', 'must be')}"
