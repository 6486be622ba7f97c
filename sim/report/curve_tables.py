"""What ``curve`` answers: capacity against request length as rows, as JSON and as a table."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from sim.capacity import CapacityCurve, CapacityPoint
from sim.report.plan_tables import group_label
from sim.report.tables import Table, number
from sim.scenario import Scenario
from sim.units import format_bytes

POINTS_PER_OCTAVE = 8
SHORTEST = 128
"""The curve's shortest length in tokens, or a 64th of max_model_len where that is less."""


def curve_lengths(max_model_len: int) -> list[int]:
    """Request lengths, evenly spaced on a log axis, that end at ``max_model_len``.

    >>> curve_lengths(1024)[:10], curve_lengths(1024)[-1]
    ([16, 17, 19, 21, 23, 25, 27, 29, 32, 35], 1024)
    """
    start = max(min(SHORTEST, max_model_len // 64), 1)
    steps = range((max_model_len.bit_length() + 1) * POINTS_PER_OCTAVE)
    lengths = {round(start * 2 ** (i / POINTS_PER_OCTAVE)) for i in steps}
    return sorted({length for length in lengths if length < max_model_len} | {max_model_len})


def round_lengths(lengths: Sequence[int]) -> set[int]:
    """The lengths a table shows of a long curve: powers of two, and the last."""
    return {length for length in lengths if length & (length - 1) == 0} | set(lengths[-1:])


def curve_rows(curve: CapacityCurve) -> list[dict[str, Any]]:
    """One row per length; block numbers are sums over the groups, then those of each group follow."""
    columns = curve.columns()
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


def curve_data(scenario: Scenario, curve: CapacityCurve) -> dict[str, Any]:
    """The curve as JSON-ready data."""
    other = curve.all_full
    return {
        "name": scenario.name,
        "model": scenario.model.name,
        "num_blocks": curve.hybrid.num_blocks,
        "block_bytes": curve.hybrid.block_bytes,
        "all_full_num_blocks": other.num_blocks if other else None,
        "all_full_block_bytes": other.block_bytes if other else None,
        "groups": [group_label(group) for group in curve.hybrid.groups],
        "break_even_tokens": curve.break_even_tokens,
        "break_even_resident_tokens": curve.break_even_resident_tokens,
        "points": curve_rows(curve),
    }


def write_csv(path: Path, curve: CapacityCurve) -> None:
    """Write the rows of the curve as CSV; a number that does not exist is an empty cell."""
    rows = curve_rows(curve)
    with path.open("w", encoding="utf-8", newline="") as stream:
        writer = csv.DictWriter(stream, fieldnames=list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


def curve_tables(scenario: Scenario, curve: CapacityCurve, destination: str, shown: set[int]) -> list[Table]:
    """The table ``curve`` prints, of the lengths in ``shown``."""
    header = ("tokens", "resident", "peak", "admission", "KV/token", "fit", "all-full KV/token", "fit", "saving")
    rows = [_cells(point) for point in curve.points if point.tokens in shown]
    block = format_bytes(curve.hybrid.block_bytes)
    notes = [
        f"blocks of {block} over all {len(curve.hybrid.groups)} groups; fit: requests at once, by vLLM's formula",
        _break_even(curve),
        f"results in {destination}",
    ]
    title = f"{scenario.model.name}: capacity against request length, hybrid and all-full"
    return [Table(title, header, rows, notes)]


def _break_even(curve: CapacityCurve) -> str:
    if curve.all_full is None:
        return "vLLM cannot turn the hybrid manager off for this model"
    fit, held = (
        "at no length" if tokens is None else f"from {tokens:,} tokens on"
        for tokens in (curve.break_even_tokens, curve.break_even_resident_tokens)
    )
    return f"hybrid fits more requests {fit}; a decoding request holds less {held}"


def _cells(point: CapacityPoint) -> tuple[str, ...]:
    all_full = point.all_full_kv_bytes_per_token
    return (
        number(point.tokens),
        number(point.resident_blocks),
        number(point.peak_blocks),
        number(point.admission_blocks),
        format_bytes(round(point.kv_bytes_per_token)),
        number(point.max_concurrency),
        "-" if all_full is None else format_bytes(round(all_full)),
        number(point.all_full_max_concurrency),
        "-" if point.saving is None else f"{100 * point.saving:.0f} %",
    )
