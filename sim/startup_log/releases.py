"""Rules that changed between releases, and which release a log comes from."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

Release = tuple[int, int]

_LINES: Final[tuple[tuple[int, Release], ...]] = (
    (831, (0, 10)),
    (864, (0, 10)),
    (1028, (0, 10)),
    (1087, (0, 11)),
    (1229, (0, 12)),
    (1286, (0, 12)),
    (1291, (0, 14)),
    (1305, (0, 14)),
    (1307, (0, 15)),
    (1314, (0, 17)),
    (1319, (0, 19)),
    (1708, (0, 21)),
    (1710, (0, 20)),
    (1711, (0, 20)),
    (1733, (0, 23)),
    (1869, (0, 28)),
    (2315, (0, 29)),
    (2321, (0, 29)),
    (2395, (0, 30)),
)
"""Lines of ``kv_cache_utils.py`` that print the tokens, and a release each belongs to: seen in logs that name both."""

_NEXT_STATEMENT: Final = 5
"""The concurrency is printed so many lines further down, or fewer."""


@dataclass(frozen=True, slots=True)
class Rules:
    """What differs from vLLM 0.33.0 in one release.

    ``old_tokens``: the tokens line counts one group (up to 0.20). ``batches_in_flight``: what windows are charged for
    with async scheduling (one batch up to 0.19). ``smallest_bucket``: layers per group are the smallest bucket, however
    close the largest (before 0.12). ``caches_states``: prefix caching is on for models with states by default.
    ``asks_kernels``: the kernels choose the size of blocks even where attention is not latent (taken to begin with
    0.30).
    """

    release: Release | None
    old_tokens: bool
    batches_in_flight: int
    smallest_bucket: bool
    caches_states: bool
    asks_kernels: bool
    gpu_memory_utilization: float


def rules_of(release: Release | None) -> Rules:
    """The rules of a release; of the newest where none is known.

    >>> rules_of((0, 11)).old_tokens, rules_of((0, 21)).old_tokens, rules_of(None).batches_in_flight
    (True, False, 2)
    """
    known = release or (0, 33)
    return Rules(
        release=release,
        old_tokens=known < (0, 21),
        batches_in_flight=1 if known < (0, 20) else 2,
        smallest_bucket=known < (0, 12),
        caches_states=known >= (0, 20),
        asks_kernels=known >= (0, 30),
        gpu_memory_utilization=0.9 if known < (0, 22) else 0.92,
    )


def release_of_text(text: str) -> Release | None:
    """The release in a version string; development builds without one have none.

    >>> release_of_text("0.19.2rc1.dev8+g4b7f5ea1a"), release_of_text("0.1.dev20051+g487ecf187")
    ((0, 19), None)
    """
    found = re.match(r"(\d+)\.(\d+)", text)
    if found is None or "0.1.dev" in text:
        return None
    return int(found[1]), int(found[2])


def release_of_line(module: str, line: int) -> Release | None:
    """The release whose ``module`` prints the capacity at this line, or a few lines above it; None for other lines.

    >>> release_of_line("kv_cache_utils", 1091), release_of_line("kv_cache_utils", 1)
    ((0, 11), None)
    """
    if module != "kv_cache_utils":
        return None
    exact = dict(_LINES).get(line)
    near = (release for known, release in reversed(_LINES) if 0 < line - known <= _NEXT_STATEMENT)
    return exact or next(near, None)
