"""YAML read strictly: one document, no duplicate keys, no tags, no bombs, and the line of every key kept.

Scalars follow YAML 1.2's core schema rather than YAML 1.1: ``on``/``yes`` are text, ``1e-3`` is a number, ``1:30`` is
text, so a value never turns into something its author did not write.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from sim.errors import InputError

MAX_FILE_BYTES = 1 << 20
MAX_NODES = 20_000
MAX_DEPTH = 40

KeyPath = tuple[str | int, ...]


@dataclass(frozen=True, slots=True)
class Document:
    """A parsed document: its plain ``value`` and, per key path, the place (``file:line``) it was written at."""

    name: str
    value: Any
    places: dict[KeyPath, str] = field(default_factory=dict)

    def place(self, path: KeyPath) -> str:
        """The place of ``path``, of the nearest enclosing key written down, or of the first key written below it."""
        for end in range(len(path), 0, -1):
            if path[:end] in self.places:
                return self.places[path[:end]]
        below = (place for known, place in self.places.items() if path and known[: len(path)] == path)
        return next(below, self.name)


class _CoreSchemaLoader(yaml.SafeLoader):
    """PyYAML's safe loader with YAML 1.2's notion of null, bool, int and float."""


_CoreSchemaLoader.yaml_implicit_resolvers = {}
_NULL, _BOOL, _INT, _FLOAT, _STR, _MAP, _SEQ = (
    f"tag:yaml.org,2002:{kind}" for kind in ("null", "bool", "int", "float", "str", "map", "seq")
)
_PLAIN_SCALARS = (
    (_NULL, r"|~|null|Null|NULL", "~nN\0"),
    (_BOOL, r"true|True|TRUE|false|False|FALSE", "tTfF"),
    (_INT, r"[-+]?[0-9]+(_[0-9]+)*", "-+0123456789"),
    (
        _FLOAT,
        r"[-+]?(\.[0-9]+|[0-9]+(_[0-9]+)*(\.[0-9]*)?)([eE][-+]?[0-9]+)?|[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)",
        "-+.0123456789",
    ),
)
for _tag, _pattern, _first in _PLAIN_SCALARS:
    # PyYAML looks an empty plain scalar up under the empty string.
    _CoreSchemaLoader.add_implicit_resolver(
        _tag, re.compile(rf"^(?:{_pattern})$"), ["" if letter == "\0" else letter for letter in _first]
    )


def read_yaml(path: Path, name: str) -> Document:
    """Read the YAML file at ``path``, called ``name`` in messages; InputError when it cannot be used."""
    try:
        with path.open("rb") as stream:
            raw = stream.read(MAX_FILE_BYTES + 1)
    except IsADirectoryError as error:
        raise InputError("is a folder; give a scenario file (.yaml)", where=name) from error
    except (OSError, ValueError) as error:
        raise InputError(f"cannot be read: {getattr(error, 'strerror', None) or error}", where=name) from error
    if len(raw) > MAX_FILE_BYTES:
        raise InputError(f"is larger than {MAX_FILE_BYTES:,} bytes, more than any scenario file needs", where=name)
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw[: error.start].count(b"\n") + 1
        raise InputError("is not UTF-8 text; give a YAML file", where=f"{name}:{line}") from error
    return parse_yaml(text, name)


def parse_yaml(text: str, name: str, *, first_line: int = 1) -> Document:
    """Parse one YAML document; InputError with ``name:line`` when it is malformed, ambiguous or explosive.

    >>> parse_yaml("a: {b: 1e-3, c: on}", "x.yaml").value
    {'a': {'b': 0.001, 'c': 'on'}}
    """
    loader = _loader(text, name)
    try:
        node = loader.get_single_node()
    except yaml.MarkedYAMLError as error:
        raise _syntax_error(error, name) from error
    except RecursionError as error:
        raise InputError(f"nested too deeply; at most {MAX_DEPTH} levels are read", where=name) from error
    finally:
        loader.dispose()
    if node is None:
        return Document(name, None)
    reader = _Reader(name, first_line)
    value = reader.read(node, (), 0)
    return Document(name, value, reader.places)


def parse_value(text: str, where: str) -> Any:
    """Parse the value part of ``--set key=value``; InputError at ``where``.

    >>> parse_value("null", "--set x") is None, parse_value("[1, 2]", "--set x")
    (True, [1, 2])
    """
    try:
        return parse_yaml(text, where).value
    except InputError as error:
        raise InputError(f"in the value {text[:40]!r}: {error.message}", where=where) from error


def dump_yaml(value: Any) -> str:
    """Write plain dicts, lists and scalars as YAML in the order given, readable back by ``parse_yaml``."""
    return yaml.dump(value, Dumper=_PlainDumper, sort_keys=False, allow_unicode=True, width=100)


class _PlainDumper(yaml.SafeDumper):
    """Quotes what either YAML 1.1 or 1.2 would read as something else than text, and never writes aliases."""

    def ignore_aliases(self, data: Any) -> bool:  # noqa: ARG002  (the base class's signature)
        return True


def _represent_text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    number_like = re.fullmatch(rf"(?:{_PLAIN_SCALARS[3][1]})", text) is not None
    return dumper.represent_scalar(_STR, text, style="'" if number_like else None)


_PlainDumper.add_representer(str, _represent_text)


def _loader(text: str, name: str) -> _CoreSchemaLoader:
    try:
        return _CoreSchemaLoader(text)
    except yaml.reader.ReaderError as error:
        line = text[: error.position].count("\n") + 1
        raise InputError("holds a control character; a scenario is a text file", where=f"{name}:{line}") from error


def _syntax_error(error: yaml.MarkedYAMLError, name: str) -> InputError:
    mark = error.problem_mark or error.context_mark
    where = f"{name}:{mark.line + 1}" if mark is not None else name
    problem = error.problem or "cannot be parsed"
    if "found another document" in problem or "single document" in (error.context or ""):
        return InputError("a second YAML document starts here; a scenario file holds exactly one", where=where)
    context = f" ({error.context})" if error.context else ""
    return InputError(f"not valid YAML: {problem}{context}", where=where)


class _Reader:
    """Turns composed nodes into plain values, counting every node each time an alias repeats it."""

    def __init__(self, name: str, first_line: int) -> None:
        self.name = name
        self.offset = first_line
        self.seen = 0
        self.places: dict[KeyPath, str] = {}

    def read(self, node: yaml.Node, path: KeyPath, depth: int) -> Any:
        self.seen += 1
        if self.seen > MAX_NODES:
            raise self.error(node, f"expands to more than {MAX_NODES:,} values; aliases multiply, write less")
        if depth > MAX_DEPTH:
            raise self.error(node, f"nested too deeply, or an alias inside itself; at most {MAX_DEPTH} levels are read")
        if isinstance(node, yaml.MappingNode):
            return {key: self.read(value, (*path, key), depth + 1) for key, value in self._entries(node, path)}
        if isinstance(node, yaml.SequenceNode):
            return [self._item(child, (*path, i), depth + 1) for i, child in enumerate(node.value)]
        return self._scalar(node)

    def _item(self, node: yaml.Node, path: KeyPath, depth: int) -> Any:
        self.places[path] = self._place(node)
        return self.read(node, path, depth)

    def _entries(self, node: yaml.MappingNode, path: KeyPath) -> Iterator[tuple[str, yaml.Node]]:
        if node.tag != _MAP:
            raise self.error(node, f"the tag {node.tag!r} is not allowed here")
        lines: dict[str, int] = {}
        for key_node, value_node in node.value:
            if not isinstance(key_node, yaml.ScalarNode):
                raise self.error(key_node, "a key must be plain text")
            key = key_node.value
            line = key_node.start_mark.line + self.offset
            if key in lines:
                raise self.error(key_node, f"the key {key!r} is given twice (first in line {lines[key]}); keep one")
            lines[key] = line
            self.places[(*path, key)] = self._place(key_node)
            yield key, value_node

    def _scalar(self, node: yaml.Node) -> Any:
        text = str(node.value)
        if node.tag == _STR:
            return text
        if node.tag == _NULL:
            return None
        if node.tag == _BOOL:
            return text.lower() == "true"
        try:
            if node.tag == _INT:
                return int(text)
            if node.tag == _FLOAT:
                return float(text.replace(".inf", "inf").replace(".nan", "nan"))
        except ValueError as error:
            raise self.error(node, f"the number {text[:20]!r} cannot be read") from error
        raise self.error(node, f"the tag {node.tag!r} is not allowed here")

    def _place(self, node: yaml.Node) -> str:
        return f"{self.name}:{node.start_mark.line + self.offset}"

    def error(self, node: yaml.Node, message: str) -> InputError:
        """An InputError at the line of ``node``."""
        return InputError(message, where=self._place(node))
