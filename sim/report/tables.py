"""The answers as tables of text: what ``run``, ``plan``, ``curve`` and ``compare`` print."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sim.models import Model

PERCENTILES = ("mean", "p50", "p90", "p99")


@dataclass(frozen=True, slots=True)
class Table:
    """A titled table of text. ``prose`` tables hold words and are aligned to the left."""

    title: str
    header: tuple[str, ...]
    rows: Sequence[tuple[str, ...]]
    notes: Sequence[str] = field(default_factory=tuple)
    prose: bool = False


def number(value: float | None, digits: int = 3) -> str:
    """A number for reading: whole numbers with separators, others with ``digits`` significant digits.

    >>> number(1234567), number(0.012345), number(98765.4), number(None)
    ('1,234,567', '0.0123', '98,765', '-')
    """
    if value is None or value != value:
        return "-"
    if isinstance(value, int):
        return f"{value:,}"
    return f"{value:,.0f}" if abs(value) >= 10**digits else f"{value:.{digits}g}"


def seconds(value: float | None) -> str:
    """A time for reading, in the unit that suits it.

    >>> seconds(0.0123), seconds(2.5), seconds(4000.0), seconds(None)
    ('12.3 ms', '2.5 s', '1.11 h', '-')
    """
    if value is None or value != value:
        return "-"
    for limit, scale, unit in ((1.0, 1e-3, "ms"), (600.0, 1.0, "s"), (3600.0, 60.0, "min")):
        if abs(value) < limit:
            return f"{number(value / scale)} {unit}"
    return f"{number(value / 3600.0)} h"


def share(part: float, whole: float) -> str:
    """``part`` of ``whole`` in per cent; a dash where there is no whole.

    >>> share(1, 8), share(0, 0)
    ('12.5 %', '-')
    """
    return f"{100 * part / whole:.1f} %" if whole else "-"


def agreed(said: Mapping[str, str | None]) -> str:
    """What is said of each, once where all agree, otherwise with the names it is said of; empty where nothing is.

    >>> agreed({"a": "exact", "b": "exact", "c": None}), agreed({"a": "exact", "b": "guess", "c": "exact"})
    ('exact', 'a, c: exact; b: guess')
    """
    names: dict[str, list[str]] = {}
    for name, text in said.items():
        if text:
            names.setdefault(text, []).append(name)
    if len(names) <= 1:
        return next(iter(names), "")
    return "; ".join(f"{', '.join(of)}: {text}" for text, of in names.items())


def layers_line(model: Model) -> str:
    """A model's layers by kind, as in ``52 sliding_window 1024 + 10 full``."""
    return " + ".join(f"{count} {kind}" for kind, count in model.layer_counts.items())


_TTFT_PARTS = {
    "queue_s": "waits for prefill",
    "prefill_s": "prefill",
    "decode_queue_s": "waits for blocks to decode",
    "transfer_s": "waits for the link, transfer",
    "first_decode_s": "to the first token",
}


def latency_rows(summary: Mapping[str, Any]) -> list[tuple[str, ...]]:
    """One row per kind of latency the summary has: mean and percentiles."""
    names = {"ttft_s": "time to first token", "tpot_s": "time per output token", "e2e_s": "end to end"}
    named = [(label, summary[key]) for key, label in names.items() if key in summary]
    if "ttft_parts" in summary:
        named[1:1] = [(f"  {label}", summary["ttft_parts"][key]) for key, label in _TTFT_PARTS.items()]
    return [(label, *(seconds(of.get(column)) for column in PERCENTILES)) for label, of in named]
