"""Which drafts are accepted, for vLLM's side: the rule of ``sim.core.hashing.draw`` once more, in plain Python."""

from __future__ import annotations

_WORD = (1 << 64) - 1
_GOLDEN = 0x9E3779B97F4A7C15
_ROOT = 0x5851F42D4C957F2D
_DRAWN = 1 << 53


def mixed(word: int) -> int:
    """The finaliser of splitmix64."""
    word = ((word ^ word >> 30) * 0xBF58476D1CE4E5B9) & _WORD
    word = ((word ^ word >> 27) * 0x94D049BB133111EB) & _WORD
    return word ^ word >> 31


def accepted(rates: list[float], seed: int, ordinal: int, outputs: int, drafts: int) -> int:
    """How many of a request's next drafts are accepted, after ``outputs`` outputs.

    ``rates``: per position, how often the drafts up to there are all accepted.

    >>> [accepted([0.7, 0.49, 0.343], 1, 0, outputs, 3) for outputs in range(8)]
    [1, 1, 3, 2, 0, 0, 2, 0]
    """
    word = mixed(_ROOT ^ seed)
    for value in (ordinal, outputs):
        word = mixed((word + (value + 1) * _GOLDEN) & _WORD)
    return sum(word >> 11 < round(rate * _DRAWN) for rate in rates[:drafts])


def rates_of(config: dict[str, object]) -> list[float]:
    """The rates of a case's configuration."""
    drafts = int(str(config["num_speculative_tokens"]))
    if config.get("acceptance_rate") is None:
        rates = config["synthetic_acceptance_rates"]
        assert isinstance(rates, list)
        return rates
    rates = [float(str(config["acceptance_rate"]))]
    while len(rates) < drafts:
        rates.append(rates[-1] * rates[0])
    return rates
