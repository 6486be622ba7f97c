"""Drafts once more: how many are proposed, what they cost, and which are accepted, from a description in words."""

from __future__ import annotations

from dataclasses import dataclass

WORD = 1 << 64
CERTAIN = 1 << 53
"""A draft whose number is this is always accepted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Drafts:
    """Speculative decoding by vLLM's names; ``acceptance``: of 2^53, one per draft, for it and all before it."""

    acceptance: tuple[int, ...] = ()
    seed: int = 0
    num_lookahead_tokens: int = 0  # slots beyond the scheduled tokens
    draft_slots: int = 0  # tokens of the budget per scheduled request
    prefill_lookahead: int = 0  # tokens past a chunk that the draft modules read with it
    hash_lookahead: int = 0  # tokens past a block that its key covers too
    drops_last_block: bool = False  # hits lose their last block: it depends on the token after it (EAGLE)
    draft_groups: frozenset[int] = frozenset()  # in those groups and those of their spec; empty: in all
    shared_prefix_checkpoint: bool = False  # a state is kept at a junction inside a block, where that is possible

    @property
    def count(self) -> int:
        """num_speculative_tokens."""
        return len(self.acceptance)

    @property
    def computed_again(self) -> int:
        """Last tokens of a prefill that several modules compute once more."""
        return max(0, self.prefill_lookahead - 1)

    def accepted(self, ordinal: int, outputs: int, drafts: int) -> int:
        """How many of a request's drafts the model agrees with, after so many outputs; of -n: none were made."""
        number = drawn(self.seed, ordinal, outputs)
        return sum(number < rate for rate in self.acceptance[: max(drafts, 0)])


NO_DRAFTS = Drafts()


def spread(word: int) -> int:
    """The finaliser of splitmix64."""
    word = (word ^ (word >> 30)) * 0xBF58476D1CE4E5B9 % WORD
    word = (word ^ (word >> 27)) * 0x94D049BB133111EB % WORD
    return word ^ (word >> 31)


def drawn(seed: int, *numbers: int) -> int:
    """A number below 2^53: a chain of splitmix64 over the seed and each number, counted from 1."""
    word = spread(seed ^ 0x5851F42D4C957F2D)
    for number in numbers:
        word = spread((word + (number + 1) * 0x9E3779B97F4A7C15) % WORD)
    return word >> 11
