"""A number of bytes, and how well it is known."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from sim.units import GIB

Source = Literal["given", "exact", "estimate"]


@dataclass(frozen=True, slots=True)
class Amount:
    """Bytes; ``given`` by the user, ``exact`` by vLLM's rules, or an ``estimate`` that is off by ``spread_bytes``."""

    num_bytes: int
    source: Source
    spread_bytes: int = 0

    def __str__(self) -> str:
        """In GiB, with the spread of an estimate.

        >>> print(Amount(3 * GIB, "given"), Amount(3 * GIB, "estimate", GIB // 2), sep=" | ")
        3.00 GiB (given) | 3.00 GiB (estimate ± 0.50)
        """
        spread = f" ± {self.spread_bytes / GIB:.2f}" if self.source == "estimate" else ""
        return f"{self.num_bytes / GIB:.2f} GiB ({self.source}{spread})"
