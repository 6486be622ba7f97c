"""Spoiling good input, from a seed: keys taken, moved and invented, values no one expects, text cut and sprinkled."""

from __future__ import annotations

import copy
import random
from collections.abc import Callable, Iterator, Sequence
from typing import Any

VALUES: tuple[Any, ...] = (
    *(
        None,
        True,
        False,
        "",
        " ",
        "x",
        "true",
        "null",
        "8k",
        "-",
        "~",
        "1e999",
        "nan",
        "../..",
        "sample:",
        "\0",
        "ü" * 300,
    ),
    *(0, 1, -1, 2, 3, 7, 10**6, 2**31, 2**53 + 1, 2**63 - 1, 2**63, -(2**63) - 1, 10**30),
    *(0.5, -0.5, 1e-300, 1e300, 1e9, float("nan"), float("inf"), float("-inf")),
    *([], [0], [[]], {}, {"x": 1}, {"": None}, [None, "x", -1], list(range(50))),
)
"""What stands in for a good value."""
CHARACTERS = "\t\n\r :-[]{},\"'#&*!|>%@`~?=./\\0123456789eE+xX_\0\x7f\ufeff\u2028é"
NUMBERS = (
    "-1",
    "0",
    "1e9",
    "1e999",
    "nan",
    "inf",
    "0x10",
    "1_000",
    "99999999999999999999",
    "1.5",
    "",
    "٣",
    '"',
    "true",
)


def spoiled(value: Any, rng: random.Random, times: int = 1) -> Any:
    """A copy of a tree of mappings and lists with some places of it changed."""
    tree = copy.deepcopy(value)
    for _ in range(times):
        places = list(_places(tree))
        if not places:
            return rng.choice(VALUES)
        holder, key = rng.choice(places)
        rng.choice(_TREE)(holder, key, rng, tree)
    return tree


def _places(tree: Any) -> Iterator[tuple[Any, Any]]:
    """Every (mapping or list, key or index) of a tree."""
    entries = tree.items() if isinstance(tree, dict) else enumerate(tree) if isinstance(tree, list) else ()
    for key, value in entries:
        yield tree, key
        yield from _places(value)


def _replace(holder: Any, key: Any, rng: random.Random, tree: Any) -> None:
    holder[key] = copy.deepcopy(rng.choice(VALUES))


def _scale(holder: Any, key: Any, rng: random.Random, tree: Any) -> None:
    if isinstance(holder[key], int | float):
        holder[key] = holder[key] * rng.choice([-1, 0.5, 2, 3, 10, 1000, 10**6]) + rng.choice([0, 1, -1])
    else:
        holder[key] = [holder[key]]


def _delete(holder: Any, key: Any, rng: random.Random, tree: Any) -> None:
    del holder[key]


def _add(holder: Any, key: Any, rng: random.Random, tree: Any) -> None:
    if isinstance(holder, dict):
        holder[rng.choice([f"{key}x", str(key)[1:], "", " ", "0", str(key).upper()])] = copy.deepcopy(holder[key])
    else:
        holder.insert(key, copy.deepcopy(holder[key]))


def _move(holder: Any, key: Any, rng: random.Random, tree: Any) -> None:
    other, where = rng.choice(list(_places(tree)))
    other[where] = copy.deepcopy(holder[key])


_TREE: tuple[Callable[[Any, Any, random.Random, Any], None], ...] = (_replace, _replace, _scale, _delete, _add, _move)


def spoiled_text(text: str, rng: random.Random, times: int = 1) -> str:
    """Text with lines or characters of it dropped, doubled, swapped or sprinkled in, or a number put for a number."""
    for _ in range(times):
        text = rng.choice(_TEXT)(text, rng) if text else rng.choice(NUMBERS)
    return text


def _cut(text: str, rng: random.Random) -> str:
    return text[: rng.randrange(len(text))]


def _sprinkle(text: str, rng: random.Random) -> str:
    at = rng.randrange(len(text) + 1)
    return text[:at] + "".join(rng.choices(CHARACTERS, k=rng.choice([1, 1, 2, 5]))) + text[at + rng.choice([0, 1]) :]


def _lines(text: str, rng: random.Random) -> str:
    lines = text.splitlines(keepends=True)
    at, other = rng.randrange(len(lines)), rng.randrange(len(lines))
    lines[at:at] = rng.choice([[], [lines[other]], [lines[at]] * 3])
    if rng.random() < 0.5:
        del lines[rng.randrange(len(lines))]
    return "".join(lines)


def _number(text: str, rng: random.Random) -> str:
    starts = [i for i, c in enumerate(text) if c.isdigit() and not text[max(i - 1, 0)].isdigit()]
    if not starts:
        return _sprinkle(text, rng)
    start = rng.choice(starts)
    end = start + 1
    while end < len(text) and (text[end].isdigit() or text[end] in ".e"):
        end += 1
    return text[:start] + rng.choice(NUMBERS) + text[end:]


_TEXT: tuple[Callable[[str, random.Random], str], ...] = (_cut, _sprinkle, _sprinkle, _lines, _number, _number)


def spoiled_bytes(raw: bytes, rng: random.Random, times: int = 3) -> bytes:
    """Bytes with some of them changed, or cut short."""
    data = bytearray(raw)
    for _ in range(times):
        if data:
            data[rng.randrange(len(data))] = rng.randrange(256)
    return bytes(data[: rng.randrange(len(data) + 1)] if rng.random() < 0.3 else data)


def spoiled_words(words: Sequence[str], rng: random.Random, keep: int = 1) -> tuple[str, ...]:
    """A command line with a word behind the first ``keep`` dropped, doubled, changed, moved or glued to the next."""
    line = list(words)
    at = rng.randrange(min(keep, len(line) - 1), len(line))
    how = rng.randrange(6)
    if how == 0:
        del line[at]
    elif how == 1:
        line.insert(at, rng.choice(line[keep:]))
    elif how == 2:
        line[at] = str(rng.choice(VALUES)).replace("\0", "")
    elif how == 3:
        line[at] = spoiled_text(line[at], rng).replace("\0", "")
    elif how == 4:
        line[at : at + 2] = ["=".join(line[at : at + 2])]
    else:
        line.append(line.pop(at))
    return tuple(line)
