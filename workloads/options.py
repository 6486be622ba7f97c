"""What a user says about a trace that the trace does not say itself."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from workloads.columns import MAX_SECONDS, MAX_TOKENS
from workloads.settings import Settings

UNITS_NS = {"s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1}
OPTION_KEYS = ("block_size", "time_unit", "columns", "tokenizer", "chars_per_token", "turn_think_s")


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """How to read a trace; every field may be absent, and a reader that needs an absent one says so.

    ``block_size``: tokens per block id. ``time_unit``: of plain numbers of time. ``columns``: which column or key holds
    what. ``tokenizer``: counts the tokens of texts; without one, ``chars_per_token`` estimates them. ``turn_think_s``:
    between an answer and the next turn, in conversations that do not say it.
    """

    block_size: int | None = None
    time_unit: str | None = None
    columns: Mapping[str, str] = field(default_factory=dict)
    tokenizer: str | None = None
    chars_per_token: float | None = None
    turn_think_s: float = 0.0

    @classmethod
    def from_settings(cls, settings: Settings) -> ReadOptions:
        """Read the keys of `OPTION_KEYS`; raises `WorkloadError` for a value that is not allowed."""
        return cls(
            settings.integer("block_size", 1, MAX_TOKENS) if "block_size" in settings else None,
            settings.choice("time_unit", tuple(UNITS_NS)) if "time_unit" in settings else None,
            settings.texts("columns"),
            settings.text("tokenizer") if "tokenizer" in settings else None,
            settings.number("chars_per_token", 0.1, 100) if "chars_per_token" in settings else None,
            settings.number("turn_think_s", 0, MAX_SECONDS, 0.0),
        )
