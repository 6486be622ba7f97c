"""Changes to a scenario from outside its file: ``--set dotted.key=value``, ``plan``'s flags, and variants."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from sim.errors import InputError
from sim.scenario.strict_yaml import Document, KeyPath, parse_value

EXCLUSIVE: dict[KeyPath, frozenset[str]] = {
    ("memory",): frozenset({"num_gpu_blocks_override", "kv_cache_memory_bytes", "available_kv_cache_memory_gib"}),
    ("workload",): frozenset({"trace", "synthetic"}),
}
"""Keys of which a mapping holds one at a time: setting one from outside takes the others away."""


@dataclass(frozen=True, slots=True)
class Override:
    """One key set from outside the file; ``place`` is what an error about it names."""

    path: tuple[str, ...]
    value: Any
    place: str


def parse_override(text: str) -> Override:
    """Read the argument of one ``--set``: a dotted key, ``=``, and a value in YAML.

    >>> parse_override("engine.max_num_seqs=64").path, parse_override("engine.max_num_seqs=64").value
    (('engine', 'max_num_seqs'), 64)
    """
    key, separator, value = text.partition("=")
    key = key.strip()
    if not separator or not key:
        raise InputError(f"expected dotted.key=value, as in engine.max_num_seqs=64, got {text!r}", where="--set")
    place = f"--set {key}"
    return Override(split_key(key, place), parse_value(value, place), place)


def split_key(key: str, place: str) -> tuple[str, ...]:
    """The parts of a dotted key; InputError at ``place`` when one is empty.

    >>> split_key("model.layers.0.window", "--set")
    ('model', 'layers', '0', 'window')
    """
    parts = tuple(key.split("."))
    if not all(parts):
        raise InputError(f"the key {key!r} has an empty part; write it like engine.max_num_seqs", where=place)
    return parts


def apply(document: Document, overrides: Iterable[Override]) -> Document:
    """A copy of ``document`` with ``overrides`` made, in order; ``document`` itself is left alone.

    A changed ``kind`` of a step time or a generator takes its sibling keys away, since another kind has other keys;
    it is therefore set first.
    """
    value = copy.deepcopy(document.value) if isinstance(document.value, dict) else {}
    places = dict(document.places)
    for override in sorted(overrides, key=lambda item: item.path[-1] != "kind"):
        path = _set(value, override)
        places = {known: place for known, place in places.items() if known[: len(path)] != path}
        places[path] = override.place
        if path[:-1] in EXCLUSIVE:  # the whole section is now what was set
            places[path[:-1]] = override.place
    return Document(document.name, value, places)


def flatten(document: Document, variant: str, changes: Mapping[str, Any]) -> Iterator[Override]:
    """The overrides that the ``changes`` of a variant stand for; their keys may be dotted, nested, or both."""
    yield from _flatten(document, changes, ("variants", variant), ())


def _flatten(
    document: Document, changes: Mapping[str, Any], written: KeyPath, meant: tuple[str, ...]
) -> Iterator[Override]:
    for key, value in changes.items():
        place = f"{document.place((*written, key))}: {written[0]}.{written[1]}"
        path = (*meant, *split_key(key, place))
        if isinstance(value, Mapping) and value:
            yield from _flatten(document, value, (*written, key), path)
        else:
            yield Override(path, value, place)


def _set(root: dict[str, Any], override: Override) -> KeyPath:
    """Set one key in place and return its path as ``Document.places`` knows it (integers index lists)."""
    target: Any = root
    path: KeyPath = ()
    for part in override.path[:-1]:
        key = _key(target, part, override)
        if isinstance(target, dict):
            _make_room(target, path, str(key), None)
            if target.get(str(key)) is None:
                target[str(key)] = {}
        target, path = target[key], (*path, key)
    key = _key(target, override.path[-1], override)
    if isinstance(target, dict):
        _make_room(target, path, str(key), override.value)
    target[key] = copy.deepcopy(override.value)
    return (*path, key)


def _make_room(target: dict[str, Any], path: KeyPath, key: str, value: Any) -> None:
    """Take away the keys that cannot stand beside ``key``."""
    exclusive = EXCLUSIVE.get(path, frozenset())
    if key in exclusive and (exclusive - {key}) & target.keys():
        target.clear()
    if key == "kind" and path[0] in {"step_time", "workload"} and target.get(key, value) != value:
        target.clear()


def _key(target: Any, part: str, override: Override) -> str | int:
    if isinstance(target, dict):
        return part
    if not isinstance(target, list):
        raise InputError("the key it lies under is a single value, not a mapping", where=override.place)
    if not part.isdecimal() or int(part) >= len(target):
        raise InputError(f"{part!r} is no item of that list; give 0 to {len(target) - 1}", where=override.place)
    return int(part)


def difference(ours: Any, theirs: Any) -> Any:
    """What must be set on ``ours`` to make it ``theirs``; an empty mapping when they are equal."""
    if isinstance(ours, dict) and isinstance(theirs, dict) and theirs.keys() >= ours.keys():
        changes = {key: difference(ours.get(key), value) for key, value in theirs.items()}
        return {key: change for key, change in changes.items() if change != {}}
    return {} if ours == theirs else theirs
