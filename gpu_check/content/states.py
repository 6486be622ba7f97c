"""Layers with a state: a recurrence that every token before takes part in, so that a wrong state shows.

A state has what a Mamba layer's has: the last inputs (the convolution), and a sum in which an input fades with its
distance, one half faster than the other: ``s[t] = fade * s[t - 1] + u[t]``.
"""

from __future__ import annotations

from typing import Any

import torch

from gpu_check.content.small import CONV_WIDTH
from gpu_check.content.values import Vectors
from workloads.content import U64

FADES = (0.75, 0.96875)
"""How much of the sum stays with each token; fractions of two, so that powers are exact for long."""
_PIECE = 128


def scan(inputs: Any, initial: Any) -> Any:
    """The sums after each of the ``inputs`` [n, size], from ``initial`` [2 * size]: [n, 2 * size].

    >>> scan(torch.ones(3, 1), torch.zeros(2))[:, 0].tolist()
    [1.0, 1.75, 2.3125]
    """
    found, last = [], initial
    for first in range(0, inputs.shape[0], _PIECE):
        piece = inputs[first : first + _PIECE]
        size = piece.shape[1]
        halves = [_faded(piece, last[i * size : (i + 1) * size], fade) for i, fade in enumerate(FADES)]
        found.append(torch.cat(halves, 1))
        last = found[-1][-1]
    return torch.cat(found) if found else inputs.new_empty((0, initial.shape[0]))


def _faded(inputs: Any, initial: Any, fade: float) -> Any:
    """One half: a lower triangular matrix of powers times the inputs, and the initial sum faded."""
    n = inputs.shape[0]
    steps = torch.arange(n, device=inputs.device)
    distance = steps[:, None] - steps[None, :]
    powers = torch.where(distance >= 0, torch.pow(torch.tensor(fade, dtype=inputs.dtype), distance.clamp(min=0)), 0)
    return powers.to(inputs.dtype) @ inputs + (fade ** (steps + 1).to(inputs.dtype))[:, None] * initial


class TrueStates:
    """The states of one text after every number of tokens, computed from its start in float64 and kept whole."""

    def __init__(self, inputs: Vectors, tokens: U64) -> None:
        self._inputs = inputs(tokens)
        start = torch.zeros(2 * self._inputs.shape[1], dtype=torch.float64, device=self._inputs.device)
        self._sums = torch.cat([start[None], scan(self._inputs.double(), start)])

    def sums(self, tokens: int) -> Any:
        """The sum after so many tokens."""
        return self._sums[tokens]

    def convolution(self, tokens: int) -> Any:
        """The last inputs after so many tokens, the oldest first, zeros before the text."""
        return window_of(self._inputs[max(0, tokens - CONV_WIDTH) : tokens])


def window_of(inputs: Any) -> Any:
    """The last CONV_WIDTH of the inputs [n, size], zeros in the place of missing ones."""
    kept = inputs[-CONV_WIDTH:] if inputs.shape[0] else inputs
    return torch.cat([inputs.new_zeros((CONV_WIDTH - kept.shape[0], inputs.shape[1])), kept])
