"""From flags to overrides of a scenario, and to the folders results go to."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from sim.errors import InputError
from sim.scenario.overrides import Override, parse_override
from sim.vllm_flags.speculation import draft_keys

_DRAFTS = "--speculative-config"


def set_overrides(items: Sequence[str], speculative_config: str | None = None) -> list[Override]:
    """The overrides of ``--speculative-config`` and then of ``--set``.

    A trace named there may lie in the current folder as well as beside the scenario.
    """
    drafts = [] if speculative_config is None else _draft_overrides(speculative_config)
    overrides = [parse_override(item) for item in items]
    return [*drafts, *(_from_here(override) for override in overrides)]


def _draft_overrides(text: str) -> list[Override]:
    """The engine's keys of vLLM's JSON for drafts; InputError where it is none.

    >>> [
    ...     (override.path[1], override.value)
    ...     for override in _draft_overrides('{"method": "mtp", "num_speculative_tokens": 1}')
    ... ]
    [('speculative_method', 'mtp'), ('num_speculative_tokens', 1)]
    """
    try:
        config = json.loads(text)
    except json.JSONDecodeError as error:
        raise InputError(f"got {text!r}, which is no JSON ({error.msg}); quote it as a whole", where=_DRAFTS) from error
    if not isinstance(config, dict) or not config:
        example = '{"method": "ngram", "num_speculative_tokens": 3}'
        raise InputError(f"got {text!r}; expected a mapping in JSON, as in {example}", where=_DRAFTS)
    keys = draft_keys({"speculative_config": config}, {"speculative_config": _DRAFTS})
    return [Override(("engine", key), value, _DRAFTS) for key, value in keys.items()]


def destinations_of(names: Sequence[str], out: Path | None, suffix: str = "") -> list[Path]:
    """A results folder per scenario: ``out`` itself for a single one, one of its name below it for several."""
    if len(names) == 1 and out is not None:
        return [out]
    twice = next((name for i, name in enumerate(names) if name in names[:i]), None)
    if twice is not None:
        raise InputError(f"two scenarios are called {twice!r}; give one another name (--set name=… works for one run)")
    return [(out or Path("results")) / f"{name}{suffix}" for name in names]


def _from_here(override: Override) -> Override:
    if override.path != ("workload", "trace") or not isinstance(override.value, str):
        return override
    here = Path(override.value)
    return Override(override.path, str(here.absolute()) if here.exists() else override.value, override.place)
