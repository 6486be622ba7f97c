"""From a scenario's ``step_time`` section to costs for the core, and how far the times can be trusted."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sim.core.price import Price
from sim.core.price_table import INSIDE, OUTSIDE
from sim.engine_config import EngineConfig
from sim.errors import InputError
from sim.hardware import Gpu
from sim.models import Model
from sim.step_time.additive import COEFFICIENTS, additive_price, priors
from sim.step_time.constant import constant_price
from sim.step_time.experts import sharing_engines
from sim.step_time.fitted import fitted
from sim.step_time.origin import origin_class
from sim.step_time.table import table_price

CONSTANT_CLASS = "given: every step takes the time the scenario names"
PRIOR_CLASS = "estimate from priors: TPOT within 10-30 %, throughput 11-45 %, TTFT 23-105 %"
GIVEN_CLASS = "estimate from coefficients given in the scenario: as good as they are"
TABLE_CLASS = "interpolated in a table of measured step times"
WITHOUT_DRAFTING = "; verifying drafts is priced, making them is not"
"""Added to an estimate beside drafts: their tokens count as scheduled ones, the draft model's own work is left out."""
SHARED_EXPERTS = "; nothing was measured with experts shared between engines"
"""Added to an estimate with expert parallelism over data-parallel engines."""


@dataclass(frozen=True, slots=True)
class StepTime:
    """A priced step time: costs for the core, the API delay on a first token, and how far to trust it.

    ``settings`` is the section with everything filled in that stood for what was left out.
    """

    price: Price
    first_token_ns: int
    trust: str
    settings: Mapping[str, Any]

    @property
    def error_class(self) -> str:
        """How far the times can be trusted; after a run, how many of its steps lay outside the measured table too."""
        inside, outside = int(self.price.grid.seen[INSIDE]), int(self.price.grid.seen[OUTSIDE])
        if not outside:
            return self.trust
        return f"{self.trust}; {outside / (inside + outside):.1%} of the steps lie outside of it and are extended"


def make_step_time(settings: Mapping[str, Any], model: Model, engine: EngineConfig, gpu: Gpu | None) -> StepTime:
    """The step time that a checked ``step_time`` section asks for.

    Raises InputError when the additive kind is asked for and no GPU is named, and for a table that is none.
    """
    if settings["kind"] == "constant":
        return StepTime(constant_price(float(settings["seconds"]) * 1e9), 0, CONSTANT_CLASS, settings)
    if settings["kind"] == "table":
        delay = round(settings.get("c0_ms", 0.0) * 1e6)
        trust = origin_class(settings.get("origin"), model, gpu) or "step times as given"
        return StepTime(table_price(settings), delay, f"{TABLE_CLASS}: {trust}{_drafting(engine)}", settings)
    if gpu is None:
        raise InputError(
            "an additive step time needs the GPU's peaks; name one under hardware.gpu or use "
            "{kind: constant, seconds: s}",
            where="step_time.kind",
        )
    return _additive(settings, model, engine, gpu)


def _additive(settings: Mapping[str, Any], model: Model, engine: EngineConfig, gpu: Gpu) -> StepTime:
    """Coefficients as given; where none is, those fitted to the model's family on the GPU if there are any."""
    if settings.keys() <= {"kind"}:
        settings = fitted(model, gpu, COEFFICIENTS) or settings
    defaults = priors(model, engine, gpu)
    given = {name: float(settings[name]) for name in defaults if name in settings}
    coefficients = {**defaults, **given}
    trust = origin_class(settings.get("origin"), model, gpu)
    if trust is None:
        trust = GIVEN_CLASS if len(given) == len(defaults) and coefficients != defaults else PRIOR_CLASS
    filled = {"kind": "additive", **coefficients}
    if settings.get("origin"):
        filled["origin"] = settings["origin"]
    return StepTime(
        additive_price(coefficients, model, engine, gpu),
        round(coefficients["c0_ms"] * 1e6),
        trust + _drafting(engine) + (SHARED_EXPERTS if sharing_engines(model, engine) > 1 else ""),
        filled,
    )


def _drafting(engine: EngineConfig) -> str:
    return WITHOUT_DRAFTING if engine.num_speculative_tokens else ""
