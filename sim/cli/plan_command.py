"""``hybridkv plan``: what fits, without a trace."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from sim.capacity import request_blocks
from sim.cli.console import print_json, print_tables
from sim.cli.given import MEMORY_FLAGS, plan_overrides
from sim.errors import InputError, nearest
from sim.models import model_names
from sim.planning import plan_kv_cache
from sim.report.plan_tables import plan_data, plan_tables
from sim.scenario import Document, Override, Scenario, build_scenario, load_scenario, shipped_scenarios
from sim.scenario.checking import located
from sim.scenario.find import SUFFIXES
from sim.scenario.numbers import human_readable_int
from sim.scenario.overrides import apply


def plan_command(target: str, lengths: Sequence[str] | None, flags: Mapping[str, Any], *, as_json: bool) -> int:
    """Plan ``target`` (a model, a scenario file or a shipped scenario) under ``flags`` and print the answer."""
    scenario = _scenario(target, plan_overrides(flags))
    with located(scenario.document):
        plan = plan_kv_cache(scenario.model, scenario.engine, scenario.memory)
    tokens = request_lengths(lengths, scenario.engine.max_model_len) or [scenario.engine.max_model_len]
    requests = {length: request_blocks(plan, scenario.engine, length) for length in tokens}
    if as_json:
        print_json(plan_data(scenario, plan, requests))
    else:
        print_tables(plan_tables(scenario, plan, requests))
    return 0


def request_lengths(texts: Sequence[str] | None, max_model_len: int) -> list[int]:
    """The lengths given with ``--request-tokens``, commas allowed; InputError outside 1 … ``max_model_len``."""
    lengths = []
    for text in (part for given in texts or () for part in given.split(",")):
        try:
            length = human_readable_int(text)
        except ValueError as error:
            raise InputError(f"got {text!r}; {error}", where="--request-tokens") from error
        if not 1 <= length <= max_model_len:
            raise InputError(f"got {length:,}; a request has 1 to {max_model_len:,} tokens", where="--request-tokens")
        lengths.append(length)
    return list(dict.fromkeys(lengths))


def _scenario(target: str, overrides: Sequence[Override]) -> Scenario:
    is_file = Path(target).suffix in SUFFIXES or Path(target).is_file()
    if target in model_names() and not is_file:
        if not any(override.path[0] == "memory" for override in overrides):
            raise InputError(
                f"a model needs the memory for its KV cache; give one of {', '.join(MEMORY_FLAGS)} "
                "(vLLM prints the last one at start as 'Available KV cache memory')",
                where=target,
            )
        document = Document(target, {"name": target, "model": target})
        return build_scenario(apply(document, overrides), Path.cwd())
    if is_file or target in shipped_scenarios():
        return load_scenario(target, overrides)
    close = nearest(target, [*model_names(), *shipped_scenarios()])
    hint = f"; nearest is {close!r}" if close else ""
    raise InputError(
        f"no model of the catalogue, no scenario file and no shipped scenario{hint}; "
        "'hybridkv models' and 'hybridkv scenarios' list them",
        where=target or "MODEL",
    )
