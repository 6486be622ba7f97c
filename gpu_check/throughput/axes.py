"""Which made-up steps are timed: requests that decode x their context x tokens of a prompt."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from gpu_check.throughput.composition import Composition, made_up


@dataclass(frozen=True, slots=True)
class Axes:
    """The points of the grid, each axis rising; ``decodes`` and ``prefills`` may begin with 0.

    ``per_class`` of the scenario's steps are run of each class, those of at most ``max_pairs`` query-key pairs.
    ``headline`` is the batch and context that bandwidth is stated for; ``saving_batch`` the one that full attention is
    compared with windows at.
    """

    decodes: tuple[int, ...]
    contexts: tuple[int, ...]
    prefills: tuple[int, ...]
    per_class: int
    max_pairs: int
    headline: tuple[int, int] = (64, 8192)
    saving_batch: int = 8

    def steps(self) -> dict[tuple[int, int, int], Composition]:
        """The step of each point (decodes, context, prefill) that has any token."""
        return {
            (decodes, context, prefill): made_up(decodes, context, prefill)
            for decodes in self.decodes
            for context in self.contexts
            for prefill in self.prefills
            if decodes or prefill
        }

    def fitted(self, fits: Callable[[Composition], bool]) -> Axes:
        """The axes without the points whose largest step does not fit: contexts go first, then requests."""
        axes = self
        while not fits(made_up(axes.decodes[-1], axes.contexts[-1], axes.prefills[-1])):
            if len(axes.contexts) > 2:
                axes = replace(axes, contexts=axes.contexts[:-1])
            elif len(axes.decodes) > 2:
                axes = replace(axes, decodes=axes.decodes[:-1])
            else:
                break
        return axes


GPU_AXES = Axes(
    (0, 1, 8, 64, 256), (512, 2048, 8192, 32768), (0, 512, 2048, 8192), per_class=24, max_pairs=1 << 31, saving_batch=64
)
CPU_AXES = Axes((0, 1, 4, 16), (128, 512, 2048), (0, 128, 512, 2048), per_class=8, max_pairs=1 << 22)
"""Some 20 seconds of work on two cores."""
