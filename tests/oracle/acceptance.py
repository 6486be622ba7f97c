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

    ``rates``: per position, how often a draft is accepted when those before it are.

    >>> [accepted([0.7, 0.7, 0.7], 1, 0, outputs, 3) for outputs in range(8)]
    [3, 1, 3, 2, 2, 3, 3, 3]
    """
    for position in range(drafts):
        word = mixed(_ROOT ^ seed)
        for value in (ordinal, outputs, position):
            word = mixed((word + (value + 1) * _GOLDEN) & _WORD)
        if word >> 11 >= round(rates[position] * _DRAWN):
            return position
    return drafts


def rates_of(config: dict[str, object]) -> list[float]:
    """The rates of a case's configuration."""
    drafts = int(str(config["num_speculative_tokens"]))
    if config.get("acceptance_rate") is not None:
        return [float(str(config["acceptance_rate"]))] * drafts
    marginal = config["synthetic_acceptance_rates"]
    assert isinstance(marginal, list)
    before = [1.0, *marginal]
    return [now / then if then else 0.0 for then, now in zip(before, marginal, strict=False)]
