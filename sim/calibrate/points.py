"""Serving points: what was measured, and what it takes to simulate the same.

A CSV file has one point a row; a result of ``vllm bench serve`` is one point. Columns of a row:

- ``concurrency`` (clients that each wait for their answer) or ``request_rate`` (Poisson arrivals per second);
- ``input_len``, ``output_len`` in tokens; with ``input_len_min``, ``output_len_min`` uniform from there on;
- ``num_prompts`` (10 per client unless given);
- of ``mean_ttft_ms``, ``mean_tpot_ms``, ``output_throughput`` (tokens/s) at least one;
- any engine flag, and any key of a scenario's ``memory`` section.
"""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from sim.errors import InputError, nearest
from sim.scenario.schema import EngineKeys, MemoryKeys

MEASURED: Final = ("mean_ttft_ms", "mean_tpot_ms", "output_throughput")
_LOAD = ("concurrency", "request_rate", "input_len", "output_len", "input_len_min", "output_len_min", "num_prompts")
_MOST_CHARACTERS: Final = 16 << 20
_ENGINE, _MEMORY = tuple(EngineKeys.model_fields), tuple(MemoryKeys.model_fields)
_COLUMNS: Final = (*_LOAD, *MEASURED, *_ENGINE, *_MEMORY)


@dataclass(frozen=True, slots=True)
class Point:
    """One measured run. ``place`` says where it stands; ``changes`` are engine and memory keys of its own.

    Exactly one of ``concurrency`` and ``request_rate`` is given; lengths are (least, most) tokens.
    """

    place: str
    input_len: tuple[int, int]
    output_len: tuple[int, int]
    num_prompts: int
    measured: Mapping[str, float]
    concurrency: int | None = None
    request_rate: float | None = None
    changes: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    @property
    def lengths(self) -> tuple[int, int]:
        """Its kind of request: (input, output) tokens at most."""
        return self.input_len[1], self.output_len[1]

    def workload(self) -> dict[str, Any]:
        """The ``workload`` section that sends the same requests."""
        arrival = {"kind": "poisson", "rate_per_s": self.request_rate} if self.request_rate else {"kind": "all_at_once"}
        clients = {"max_concurrency": self.concurrency} if self.concurrency else {}
        lengths = {
            name: {"kind": "uniform", "min": low, "max": high}
            for name, (low, high) in (("prompt_tokens", self.input_len), ("output_tokens", self.output_len))
        }
        return {"synthetic": {"requests": self.num_prompts, "arrival": arrival, **lengths}, **clients}


def read_points(path: Path) -> list[Point]:
    """The points of a CSV file, or the one of a JSON result. Raises InputError with the line at fault."""
    try:
        with path.open(encoding="utf-8-sig") as stream:
            text = stream.read(_MOST_CHARACTERS + 1)
    except (OSError, UnicodeDecodeError) as error:
        why = getattr(error, "strerror", None) or "not UTF-8 text"
        raise InputError(f"cannot be read: {why}", where=str(path)) from error
    if len(text) > _MOST_CHARACTERS:
        raise InputError(f"is larger than {_MOST_CHARACTERS >> 20} MiB, more than points need", where=str(path))
    if path.suffix == ".json":
        return [_bench_point(text, str(path))]
    header, rows = _csv_rows(text, path)
    unknown = next((name for name in header if name not in _COLUMNS), None)
    if unknown is not None:
        close = nearest(str(unknown), _COLUMNS)
        hint = f"; nearest is {close!r}" if close else ""
        allowed = ", ".join((*_LOAD, *MEASURED))
        raise InputError(f"unknown column {unknown!r}{hint}; allowed are {allowed}, engine flags and memory keys",
                         where=f"{path}:1")  # fmt: skip
    return [_point(row, place) for place, row in rows]


def _csv_rows(text: str, path: Path) -> tuple[list[str], list[tuple[str, dict[str, str]]]]:
    """The header, and per line that is not blank its place and its cells by column."""
    reader = csv.reader(text.splitlines())
    try:
        lines = [(reader.line_num, [cell.strip() for cell in line]) for line in reader if line]
    except csv.Error as error:
        raise InputError(f"not a CSV row: {error}", where=f"{path}:{reader.line_num}") from error
    if len(lines) < 2:
        raise InputError("holds no points; give a header line and one point a line", where=str(path))
    header = lines[0][1]
    if twice := next((name for name in header if header.count(name) > 1), None):
        raise InputError(f"the column {twice!r} is given twice; keep one", where=f"{path}:{lines[0][0]}")
    for line, cells in lines[1:]:
        if len(cells) > len(header):
            message = f"the row has {len(cells)} columns, the header {len(header)}; is a comma too much in it?"
            raise InputError(message, where=f"{path}:{line}")
    return header, [(f"{path}:{line}", dict(zip(header, cells, strict=False))) for line, cells in lines[1:]]


def _bench_point(text: str, place: str) -> Point:
    """A result of ``vllm bench serve`` (vllm 0.33.0 benchmarks/serve.py), lengths at their mean unless listed."""
    try:
        result: Any = json.loads(text)
        if not isinstance(result, dict) or "completed" not in result:
            raise ValueError("not a result of 'vllm bench serve'")
        completed = int(result["completed"])
        totals = {"input_len": result["total_input_tokens"], "output_len": result["total_output_tokens"]}
        row: dict[str, str] = {"num_prompts": str(completed)}
        for name, total in totals.items():
            listed = result.get(f"{name}s") or [round(int(total) / completed)]
            row |= {f"{name}_min": str(min(listed)), name: str(max(listed))}
    except (ValueError, KeyError, TypeError, ArithmeticError, RecursionError) as error:
        why = f"{error} is missing" if isinstance(error, KeyError) else str(error)
        raise InputError(f"is no result that can be read: {why}", where=place) from error
    row |= {name: str(result[name]) for name in MEASURED if isinstance(result.get(name), int | float)}
    rate = result.get("request_rate", "inf")
    if result.get("max_concurrency"):
        row["concurrency"] = str(result["max_concurrency"])
    elif str(rate) != "inf":
        row["request_rate"] = str(rate)
    else:
        row["concurrency"] = str(completed)
    return _point(row, place)


def _point(row: Mapping[str, str], place: str) -> Point:
    given = {name: text for name, text in row.items() if text}
    clients = _whole(given, "concurrency", place) if "concurrency" in given else None
    rate = _number(given, "request_rate", place) if "request_rate" in given else None
    if (clients is None) == (rate is None):
        raise InputError("give either concurrency or request_rate", where=place)
    measured: dict[str, float] = {name: _number(given, name, place) for name in MEASURED if name in given}
    if not measured:
        raise InputError(f"nothing measured; give one of {', '.join(MEASURED)}", where=place)
    if "num_prompts" not in given and clients is None:
        raise InputError("num_prompts is missing; it says how long requests came at that rate", where=place)
    output_len = _lengths(given, "output_len", place)
    if "mean_tpot_ms" in measured and output_len[1] == 1:
        raise InputError("mean_tpot_ms: answers of one token have no time per further token", where=place)
    return Point(
        place=place,
        input_len=_lengths(given, "input_len", place),
        output_len=output_len,
        num_prompts=_whole(given, "num_prompts", place) if "num_prompts" in given else 10 * (clients or 1),
        measured=measured,
        concurrency=clients,
        request_rate=rate,
        changes={
            section: dict(_typed(given, names, place))
            for section, names in (("engine", _ENGINE), ("memory", _MEMORY))
            if given.keys() & set(names)
        },
    )


def _lengths(given: Mapping[str, str], name: str, place: str) -> tuple[int, int]:
    most = _whole(given, name, place)
    least = _whole(given, f"{name}_min", place) if f"{name}_min" in given else most
    if least > most:
        raise InputError(f"{name}_min is {least}, more than {name}, {most}", where=place)
    return least, most


def _whole(given: Mapping[str, str], name: str, place: str) -> int:
    value = _number(given, name, place)
    if value != int(value):
        raise InputError(f"{name}: expected a whole number, got {given[name]!r}", where=place)
    return int(value)


def _number(given: Mapping[str, str], name: str, place: str) -> float:
    if name not in given:
        raise InputError(f"{name} is missing; give it", where=place)
    try:
        value = float(given[name])
    except ValueError:
        value = math.nan
    if not 0 < value < 1e9:
        raise InputError(f"{name}: expected a number greater than 0, got {given[name]!r}", where=place)
    return value


def _typed(given: Mapping[str, str], names: tuple[str, ...], place: str) -> Iterator[tuple[str, Any]]:
    """Flags of a row as YAML would read them."""
    from sim.scenario.strict_yaml import parse_value

    for name in names:
        if name in given:
            yield name, parse_value(given[name], f"{place}: {name}")
