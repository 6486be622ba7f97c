"""The ``step_time`` section: which kind, its keys, and the file that may hold them."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field

from sim.errors import InputError, nearest
from sim.scenario.checking import check, error_at, shown
from sim.scenario.schema import Keys, NonNegative
from sim.scenario.strict_yaml import Document, KeyPath, dump_yaml, parse_yaml, read_yaml

PATH = ("step_time",)
Seconds = Annotated[float, Field(gt=0, le=3600)]
Coefficient = Annotated[float, Field(ge=0, le=1e6)]
"""Far above any that was measured, far below what could overflow a step's nanoseconds."""
Axis = Annotated[list[NonNegative], Field(min_length=1)]


class ErrorKeys(Keys):
    """Mean absolute errors in percent."""

    tpot: NonNegative | None = None
    throughput: NonNegative | None = None
    ttft: NonNegative | None = None
    step: NonNegative | None = None


class OriginKeys(Keys):
    """What the numbers were measured on, and how large the error was on those points and on points left out.

    ``held_at_prior`` names coefficients the points say nothing about, ``mostly_prior`` those they hardly tell apart.
    """

    model: str | None = None
    gpu: str | None = None
    vllm: str | None = None
    source: str | None = None
    points: Annotated[int, Field(ge=0)] | None = None
    in_sample_pct: ErrorKeys | None = None
    left_out_pct: ErrorKeys | None = None
    held_at_prior: list[str] | None = None
    mostly_prior: list[str] | None = None


class ConstantKeys(Keys):
    """Every engine step takes the same time."""

    kind: Literal["constant"]
    seconds: Seconds


class AdditiveKeys(Keys):
    """The coefficients of :mod:`sim.step_time.additive`.

    One left out is that fitted to the model's family on the GPU where there is one, else a prior.
    """

    kind: Literal["additive"] = "additive"
    a: Coefficient | None = None
    a_attn: Coefficient | None = None
    b: Coefficient | None = None
    b_kv: Coefficient | None = None
    t0_us_per_layer: Coefficient | None = None
    tr_us: Coefficient | None = None
    g: Coefficient | None = None
    c0_ms: Coefficient | None = None
    origin: OriginKeys | None = None


class TableKeys(Keys):
    """Measured step times: ``seconds[decodes][context_tokens][prefill_tokens]``, linear in between.

    ``context_tokens`` is the mean context of the requests that decode (of prefills alone: tokens computed before).
    """

    kind: Literal["table"]
    decodes: Axis
    context_tokens: Axis
    prefill_tokens: Axis
    seconds: Annotated[list[list[list[Seconds]]], Field(min_length=1)]
    c0_ms: Coefficient | None = None
    origin: OriginKeys | None = None


class FileKeys(Keys):
    """The section lies in a file of its own, relative to the scenario."""

    file: Annotated[str, Field(min_length=1)]


KINDS: dict[str, type[Keys]] = {"constant": ConstantKeys, "additive": AdditiveKeys, "table": TableKeys}


def step_time_mapping(given: dict[str, Any], document: Document, base_dir: Path) -> dict[str, Any]:
    """The checked ``step_time`` mapping, that of the file it names if it names one; additive when no kind is given.

    Raises InputError for an unknown kind or key, and for a file that cannot be used, with the line in that file.
    """
    if "file" not in given:
        return _checked(given, document, PATH)
    named = check(FileKeys, given, document, PATH).file
    if (base_dir / named).is_file():
        return read_step_time(base_dir / named)
    raise error_at(document, (*PATH, "file"), f"no file {str(base_dir / named)!r}; write one with `hybridkv calibrate`")


def read_step_time(path: Path) -> dict[str, Any]:
    """The checked section that a step-time file holds. Raises InputError with the file and line."""
    document = read_yaml(path, str(path))
    if not isinstance(document.value, dict):
        raise error_at(
            document, (), f"expected a mapping with a kind ({', '.join(KINDS)}), got {shown(document.value)}"
        )
    return _checked(document.value, document, ())


def _checked(given: dict[str, Any], document: Document, path: KeyPath) -> dict[str, Any]:
    kind = given.get("kind", "additive")
    if not isinstance(kind, str) or kind not in KINDS:
        close = nearest(str(kind), KINDS)
        hint = f"; nearest is {close!r}" if close else ""
        raise error_at(document, (*path, "kind"), f"got {shown(kind)}; allowed are {', '.join(KINDS)}{hint}")
    keys = check(KINDS[kind], {"kind": kind, **given}, document, path)
    if isinstance(keys, TableKeys):
        _check_table(keys, document, path)
    return keys.model_dump(exclude_none=True)


def _check_table(keys: TableKeys, document: Document, path: KeyPath) -> None:
    """Raise InputError for axes that do not rise, and for a nesting that does not fit them."""
    axes = {name: getattr(keys, name) for name in ("decodes", "context_tokens", "prefill_tokens")}
    for name, values in axes.items():
        if any(later <= earlier for earlier, later in pairwise(values)):
            raise error_at(document, (*path, name), f"expected numbers that rise, got {shown(values)}")
    decodes, contexts, prefills = (len(values) for values in axes.values())
    for i, rows in enumerate(keys.seconds):
        if len(rows) != contexts:
            raise error_at(document, (*path, "seconds", i), f"expected {contexts} lists, one per context_tokens")
        for j, row in enumerate(rows):
            if len(row) != prefills:
                raise error_at(
                    document, (*path, "seconds", i, j), f"expected {prefills} numbers, one per prefill_tokens"
                )
    if len(keys.seconds) != decodes:
        raise error_at(document, (*path, "seconds"), f"expected {decodes} lists, one per decodes")


def write_step_time(path: Path, section: dict[str, Any], heading: str = "") -> None:
    """Write a file that a scenario can name as ``step_time: {file: PATH}``; whole or not at all.

    ``heading``: lines of comment at its top. Raises InputError for a section that could not be read back.
    """
    text = "".join(f"# {line}\n" for line in heading.splitlines()) + dump_yaml(section)
    document = parse_yaml(text, str(path))
    _checked(document.value, document, ())
    temporary = path.with_name(path.name + ".part")
    try:
        temporary.write_text(text, encoding="utf-8")
        temporary.replace(path)
    except OSError as error:
        raise InputError(f"cannot be written: {error.strerror or error}", where=str(path)) from error
