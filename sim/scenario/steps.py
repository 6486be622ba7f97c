"""The ``step_time`` section: which kind, and its keys with defaults written out."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from sim.errors import nearest
from sim.scenario.checking import check, error_at, shown
from sim.scenario.schema import Keys, NonNegative
from sim.scenario.strict_yaml import Document

PATH = ("step_time",)


class ConstantKeys(Keys):
    """Every engine step takes the same time."""

    kind: Literal["constant"]
    seconds: Annotated[float, Field(gt=0, le=1e6)]


class AdditiveKeys(Keys):
    """a·compute + b·bytes + t0·layers + tr·sequences + g·all-reduce bytes, and c0 on the first token.

    A coefficient left out is a prior for the model and GPU at hand.
    """

    kind: Literal["additive"] = "additive"
    a: NonNegative | None = None
    b: NonNegative | None = None
    t0_us_per_layer: NonNegative | None = None
    tr_us: NonNegative | None = None
    g: NonNegative | None = None
    c0_ms: NonNegative | None = None


KINDS: dict[str, type[Keys]] = {"constant": ConstantKeys, "additive": AdditiveKeys}


def step_time_mapping(given: dict[str, Any], document: Document) -> dict[str, Any]:
    """The checked ``step_time`` mapping; additive when no kind is given. InputError for an unknown kind or key."""
    kind = given.get("kind", "additive")
    if not isinstance(kind, str) or kind not in KINDS:
        close = nearest(str(kind), KINDS)
        hint = f"; nearest is {close!r}" if close else ""
        raise error_at(document, (*PATH, "kind"), f"got {shown(kind)}; allowed are {', '.join(KINDS)}{hint}")
    return check(KINDS[kind], {"kind": kind, **given}, document, PATH).model_dump(exclude_none=True)
