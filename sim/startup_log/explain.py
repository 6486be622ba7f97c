"""A startup log explained: found, recomputed, and if it does not add up, what would have to be different."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import combinations

from sim.errors import HybridKVError, InputError
from sim.models import Model, load_model, model_names
from sim.startup_log.advice import Advice, advise
from sim.startup_log.check import LAYOUT_CHECKS, Implied, Verdict, check_layout, implied
from sim.startup_log.facts import LogFacts
from sim.startup_log.named import named_models
from sim.startup_log.reading import read_log
from sim.startup_log.recompute import Layout
from sim.startup_log.releases import Rules, rules_of
from sim.startup_log.settings import Inputs, assumptions, open_choices, stated

_MOST_LAYERS = 150_000
"""Layers planned for settings of each sort, so that a log that fits nothing is answered in seconds."""


@dataclass(frozen=True, slots=True)
class Explanation:
    """What a log says and what comes of it.

    ``inputs`` and ``verdict`` are those of the setting that agrees, or of the log as stated where none does;
    ``chosen`` are values the log leaves open, ``assumed`` what had to be different from what it states. All are None
    or empty where no model was found. ``implied`` is what follows from the numbers printed where none can be checked.
    ``tried``: settings that were recomputed to find it.
    """

    facts: LogFacts
    rules: Rules
    inputs: Inputs | None = None
    verdict: Verdict | None = None
    layout: Layout | None = None
    chosen: tuple[str, ...] = ()
    assumed: tuple[str, ...] = ()
    advice: tuple[Advice, ...] = ()
    implied: tuple[Implied, ...] = ()
    tried: int = 0

    @property
    def agrees(self) -> bool:
        """Whether all printed numbers are reproduced."""
        return self.verdict is not None and self.verdict.agrees


@dataclass(frozen=True, slots=True)
class _Try:
    inputs: Inputs
    layout: Layout
    verdict: Verdict
    chosen: tuple[str, ...]
    assumed: tuple[str, ...]


def explain_text(text: str, *, model: str | None = None, where: str = "-") -> Explanation:
    """Explain a startup log or a ``/metrics`` page; ``model`` names it where the log does not.

    Raises InputError where nothing of vLLM's is in it.
    """
    facts = read_log(text)
    if facts.is_empty:
        raise InputError(
            "no line of a vLLM startup log in it; expected one like 'GPU KV cache size: 291,658 tokens' or a metric"
            " vllm:cache_config_info",
            where=where,
        )
    facts.model = model or facts.model
    rules = rules_of(facts.version)
    found, tried = _first_agreeing(facts, rules)
    if found is None:
        return Explanation(facts, rules)
    return Explanation(
        facts,
        rules,
        found.inputs,
        found.verdict,
        found.layout,
        found.chosen,
        found.assumed,
        advise(found.inputs, found.layout, found.verdict.num_blocks) if found.verdict.agrees else (),
        () if found.verdict.checks else implied(found.layout, facts),
        tried,
    )


def _first_agreeing(facts: LogFacts, rules: Rules) -> tuple[_Try | None, int]:
    """The setting with the fewest assumptions that agrees, or the log as stated, and how many were recomputed."""
    named = list(named_models(facts.model)) if facts.model else []
    first: _Try | None = None
    tried = 0
    for tries in _stages(named, facts, rules):
        planned = 0
        for attempt in tries:
            first = first or attempt
            tried += 1
            planned += len(attempt.inputs.model.layers)
            if attempt.verdict.agrees:
                return attempt, tried
            if planned > _MOST_LAYERS:
                break
    return first, tried


def _stages(named: list[Model], facts: LogFacts, rules: Rules) -> Iterator[Iterable[_Try]]:
    """Settings in the order they are believed in: as stated, one assumption, another model, two assumptions."""
    bases = [stated(model, facts, rules) for model in named]
    yield (attempt for base in bases for attempt in _as_stated(base, facts))
    yield (attempt for base in bases for attempt in _assuming(base, facts, 1))
    if not facts.memory_ranges() and facts.integer("attention_block_size") is None:
        return  # without either, almost any model could be made to agree
    yield (attempt for base in bases[:1] for attempt in _assuming(base, facts, 2))
    yield _of_strangers(named, facts, rules)


def _of_strangers(named: list[Model], facts: LogFacts, rules: Rules) -> Iterator[_Try]:
    """Any model of the catalogue where the log names none, and prints enough to tell them apart; then with fp8."""
    if named or len(_told(facts)) < 2:
        return
    strangers = [stated(load_model(name), facts, rules) for name in model_names()]
    fp8 = [replace(base, kv_cache_dtype="fp8") for base in strangers if base.kv_cache_dtype != "fp8"]
    for bases, said in ((strangers, ()), (fp8, ("kv_cache_dtype fp8",))):
        for base in bases:
            for attempt in _as_stated(base, facts):
                yield replace(attempt, assumed=(f"the model has the layers of {base.model.name}", *said))
    for base in strangers:
        for attempt in _assuming(base, facts, 1):
            yield replace(attempt, assumed=(f"the model has the layers of {base.model.name}", *attempt.assumed))


def _told(facts: LogFacts) -> set[str]:
    told = {"tokens", "concurrency", "needed_gib", "estimated_max_len", "attention_block_size", "mamba_padding_percent"}
    return told & facts.numbers.keys()


def _as_stated(base: Inputs, facts: LogFacts, assumed: tuple[str, ...] = ()) -> Iterator[_Try]:
    """The open values that could agree: sizes of blocks and padding do not depend on the batches in flight."""
    wrong: set[Inputs] = set()
    for inputs, chosen in open_choices(base, facts.platform):
        without_batches = replace(inputs, max_num_batched_tokens=0, batches_in_flight=0)
        if without_batches in wrong:
            continue
        attempt = _attempt(inputs, facts, tuple(chosen), assumed)
        if attempt is None or any(not check.agrees for check in attempt.verdict.checks if check.name in LAYOUT_CHECKS):
            wrong.add(without_batches)
        if attempt is not None:
            yield attempt


def _assuming(base: Inputs, facts: LogFacts, number: int) -> Iterator[_Try]:
    """``base`` with ``number`` of its inputs changed, every way there is."""
    for choices in combinations(list(assumptions(base, facts, likely=number > 1)), number):
        keys = [key for choice in choices for key in choice.changes]
        if len(keys) != len(set(keys)):
            continue
        changes = {key: value for choice in choices for key, value in choice.changes.items()}
        open_ = tuple(name for name in base.open if name not in changes)
        yield from _as_stated(replace(base, **changes, open=open_), facts, tuple(choice.says for choice in choices))


def _attempt(inputs: Inputs, facts: LogFacts, chosen: tuple[str, ...], assumed: tuple[str, ...]) -> _Try | None:
    """One setting against the log, None where vLLM would not start with it."""
    try:
        layout = Layout(inputs.setting())
        if not layout.groups:
            return None
        return _Try(inputs, layout, check_layout(layout, facts, inputs.rank), chosen, assumed)
    except (HybridKVError, AssertionError, ZeroDivisionError, ValueError):
        return None
