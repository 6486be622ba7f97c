"""KV cache events of both sides in one form: hashes and names are replaced by numbers, in order of appearance.

Two logs of events are then equal exactly when their events are, up to a one-to-one renaming of hashes. Both sides of
the oracle read this, so neither vLLM nor the project is needed.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import Any

Event = list[Any]


class EventNames:
    """Numbers what one side calls its prefixes.

    >>> names = EventNames()
    >>> names.stored(["a", "b"], None, 8, 4, 0, "full_attention", None), names.removed(["b"], 0)
    (['stored', [0, 1], None, 8, 4, 0, 'full_attention', None], ['removed', [1], 0])
    """

    def __init__(self) -> None:
        self._numbers: dict[Hashable, int] = {}

    def _number(self, name: Hashable) -> int:
        return self._numbers.setdefault(name, len(self._numbers))

    def stored(
        self,
        hashes: Iterable[Hashable],
        parent: Hashable | None,
        tokens: int,
        block_size: int,
        group: int | None,
        kind: str | None,
        window: int | None,
    ) -> Event:
        """A BlockStored: its blocks, what precedes them, how many tokens were offered, and the group's description."""
        parent_number = None if parent is None else self._number(parent)
        return [
            "stored",
            [self._number(name) for name in hashes],
            parent_number,
            tokens,
            block_size,
            group,
            kind,
            window,
        ]

    def removed(self, hashes: Iterable[Hashable], group: int | None) -> Event:
        """A BlockRemoved."""
        return ["removed", [self._number(name) for name in hashes], group]

    def cleared(self) -> Event:
        """An AllBlocksCleared; names stay known, the same prefix has the same hash afterwards."""
        return ["cleared"]
