"""A flag whose value may be left out, as in ``--ray [ADDRESS]``: the parser itself knows no such flag."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from typer.core import TyperCommand

RAY = "--ray"
RAY_NAMES = ("auto", "local")


class SweepCommand(TyperCommand):
    """``hybridkv sweep``, whose ``--ray`` may stand alone; the command then gets an empty address."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the arguments with the address of a ``--ray`` that stands alone filled in."""
        return super().parse_args(ctx, with_address(args))


def with_address(arguments: Sequence[str]) -> list[str]:
    """The arguments with every ``--ray`` joined to its address, which may be empty.

    The word behind it is its address if it looks like one: ``auto``, ``local``, or with a colon, as in ``host:6379``.

    >>> with_address(["--ray", "batched-tokens"]), with_address(["many.yaml", "--ray", "ray://head:10001"])
    (['--ray=', 'batched-tokens'], ['many.yaml', '--ray=ray://head:10001'])
    """
    words, found = list(arguments), list[str]()
    while words:
        word = words.pop(0)
        if word == "--":
            return [*found, word, *words]
        if word == RAY:
            address = words.pop(0) if words and _is_address(words[0]) else ""
            word = f"{RAY}={address}"
        found.append(word)
    return found


def _is_address(word: str) -> bool:
    return word in RAY_NAMES or (":" in word and not word.startswith("-"))
