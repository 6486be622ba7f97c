"""How many drafts are accepted: given, as one rate, as vLLM's rates per position, or as a mean length.

    position                             1     2     3
    acceptance_rate 0.8                 0.8   0.64  0.51
    synthetic_acceptance_rates          0.8   0.6   0.3    how often the drafts up to here are all accepted
    synthetic_acceptance_length 2.5     1.0   0.5   0.0    one more than their sum

vllm 0.33.0 config/speculative.py:565-625 has the last two for its synthetic rejection sampling, and its metrics print
the rates of a real run in the same sense.
"""

from __future__ import annotations

from itertools import accumulate, repeat
from operator import mul
from typing import TYPE_CHECKING, Any, Final

from sim.errors import InputError, RefusalError

if TYPE_CHECKING:
    from sim.engine_config.config import EngineConfig

KEYS: Final = ("acceptance_rate", "synthetic_acceptance_rates", "synthetic_acceptance_length")
"""The keys of which one says how many drafts are accepted."""


def check_acceptance(config: EngineConfig) -> None:
    """Raise InputError for more than one answer or an answer without drafts, RefusalError for what vLLM refuses."""
    given = [key for key in KEYS if getattr(config, key) is not None]
    if not given:
        return
    where = f"engine.{given[0]}"
    if len(given) > 1:
        raise InputError(f"give only one of {' and '.join(given)}", where=where)
    drafts = config.num_speculative_tokens
    if drafts == 0:
        raise InputError("there are no drafts to accept: give speculative_method too, or remove it", where=where)
    if config.acceptance_rate is not None:
        _check_rate(config.acceptance_rate, where)
    elif config.synthetic_acceptance_rates is not None:
        _check_rates(config.synthetic_acceptance_rates, drafts, where)
    else:
        length: Any = config.synthetic_acceptance_length
        if not _is_number(length) or not 1 <= length <= drafts + 1:
            raise RefusalError(
                f"must be a number from 1 to {drafts + 1}, num_speculative_tokens + 1, got {length!r}", where=where
            )


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _check_rate(rate: Any, where: str) -> None:
    if not _is_number(rate) or not 0 <= rate <= 1:
        raise InputError(f"must be a number from 0 to 1, got {rate!r}", where=where)


def _check_rates(rates: Any, drafts: int, where: str) -> None:
    """Rates of vLLM's form: one per draft, each no larger than the one before."""
    if not isinstance(rates, list | tuple):
        raise InputError(f"must be a list of rates, one per draft, got {rates!r}", where=where)
    if len(rates) != drafts:
        raise RefusalError(
            f"has {len(rates)} rates for {drafts} drafts: vLLM wants one for each of num_speculative_tokens",
            where=where,
        )
    for position, rate in enumerate(rates):
        _check_rate(rate, f"{where}[{position}]")
        if position and rate > rates[position - 1]:
            raise RefusalError(
                f"rises from {rates[position - 1]} to {rate}: each is how often all drafts up to there are accepted, so"
                " it cannot",
                where=f"{where}[{position}]",
            )


def joint_rates(config: EngineConfig) -> tuple[float, ...]:
    """Per position, how often the drafts up to it are all accepted.

    Raises InputError where drafts are made and nothing says how many are accepted.

    >>> from sim.engine_config import EngineConfig
    >>> budgets = {"max_model_len": 4096, "max_num_batched_tokens": 2048, "max_num_seqs": 8}
    >>> drafts = {**budgets, "speculative_method": "eagle3", "num_speculative_tokens": 3}
    >>> joint_rates(EngineConfig(**drafts, acceptance_rate=0.5))
    (0.5, 0.25, 0.125)
    >>> joint_rates(EngineConfig(**drafts, synthetic_acceptance_length=2.5))
    (1.0, 0.5, 0.0)
    """
    drafts = config.num_speculative_tokens
    if config.acceptance_rate is not None:
        return tuple(accumulate(repeat(float(config.acceptance_rate), drafts), mul))
    if config.synthetic_acceptance_rates is not None:
        return tuple(map(float, config.synthetic_acceptance_rates))
    if config.synthetic_acceptance_length is not None:
        accepted = config.synthetic_acceptance_length - 1
        return tuple(min(max(accepted - position, 0.0), 1.0) for position in range(drafts))
    if drafts == 0:
        return ()
    raise InputError(
        f"how many drafts are accepted has to be given for a run: set one of {', '.join(KEYS)}",
        where="engine.num_speculative_tokens",
    )
