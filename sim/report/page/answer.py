"""The answer of a page in one sentence, and how far it can be trusted in another."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from sim.report.page.read import Run
from sim.report.roles import is_split
from sim.report.tables import number, seconds, share

BATCHES = 20
T_95 = 2.093
"""Student's t for a two-sided 95 % interval over 20 batch means (19 degrees of freedom)."""


def answer(runs: Sequence[Run]) -> str:
    """What one run found, or how the last of several differs from the first."""
    return _of_one(runs[0]) if len(runs) == 1 else _of_several(runs)


def _of_one(run: Run) -> str:
    found = run.summary
    full = share(found["peak_used_blocks"], found["num_blocks"] - 1)
    hits = share(found["prefix_cache_hit_tokens"], found["prefix_cache_queries_tokens"])
    where = " on one replica" if "replicas" in found else ""
    return (
        f"{number(found['finished'])} of {number(found['requests'])} requests finished: up to "
        f"{number(found['peak_running'])} ran together{where} in a pool that was at most {full} full, "
        f"{number(found['preemptions'])} preemptions, {hits} of the prompt tokens from the prefix cache, "
        f"{seconds(found['ttft_s']['mean'])} to the first token and {seconds(found['tpot_s']['mean'])} per further one "
        f"on average, {number(found['output_tokens_per_s'])} output tokens/s."
    )


def _of_several(runs: Sequence[Run]) -> str:
    first, last = runs[0], runs[-1]
    alike = not (is_split(first.summary) or is_split(last.summary))
    running = (run.summary["mean_running"] for run in (first, last))
    parts = [
        *([_instead("requests run together on average", *running)] if alike else []),
        _instead("preemptions", first.summary["preemptions"], last.summary["preemptions"]),
        _instead("output tokens/s", first.summary["output_tokens_per_s"], last.summary["output_tokens_per_s"]),
    ]
    times = [
        f"{name} {seconds(first.summary[key]['mean'])} instead of {seconds(last.summary[key]['mean'])}"
        for key, name in (("ttft_s", "mean time to first token"), ("tpot_s", "mean time per output token"))
    ]
    return f"{first.label} against {last.label}: {'; '.join([*parts, *times])}."


def _instead(what: str, ours: float | None, theirs: float | None) -> str:
    ratio = f" ({ours / theirs:.2f}x)" if ours and theirs else ""
    return f"{number(ours)} {what} instead of {number(theirs)}{ratio}"


def uncertainty(runs: Sequence[Run]) -> str:
    """What is exact, what is an estimate of which class, and how much the mean times vary within a run."""
    classes = "; ".join(dict.fromkeys(str(run.summary["latency_class"]) for run in runs))
    widths = [
        f"{run.label}: {seconds(run.summary['ttft_s']['mean'])} ± {seconds(width)}"
        for run in runs
        if (width := half_width(np.asarray(run.requests["ttft_s"], np.float64))) is not None
    ]
    spread = (
        f" Mean time to first token, with its 95 % interval over {BATCHES} stretches of the run: {'; '.join(widths)}."
        if widths
        else ""
    )
    return (
        "Who fits, hits, waits and is preempted is what vLLM 0.33.0 decides at these step times, block for block; the "
        f"times are: {classes}.{spread}"
    )


def half_width(values: NDArray[np.float64]) -> float | None:
    """Half the 95 % interval of a mean by batch means: neighbouring requests are not independent, stretches nearly are.

    None for fewer than ten values a batch. A. Law and W. Kelton, Simulation Modeling and Analysis, on batch means.

    >>> half_width(np.arange(100.0)) is None, half_width(np.ones(400))
    (True, 0.0)
    """
    values = values[np.isfinite(values)]
    size = len(values) // BATCHES
    if size < 10:
        return None
    means = values[: size * BATCHES].reshape(BATCHES, size).mean(1)
    return float(T_95 * means.std(ddof=1) / math.sqrt(BATCHES))
