"""Which part of a run is measured, so that ramp-up and drain do not colour the answer.

A request counts where it was sent from ``after_s`` on and before ``until_s``; rates count requests that finish in that
time, over its length::

    sent         r0   r1   r2   r3   r4        with after_s at r1 and until_s at r4: r1, r2 and r3 are measured,
    time   |----------|==============|-------> however long their answers take
                   after_s        until_s

A warm start says it in requests instead of seconds, whatever the rate: the first ``requests`` of them warm the engine
up, and the time measured begins when the next one is sent. They are served like all others, so the cache stays as they
leave it, and those that still run or wait then are the load that the measured ones meet.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # a scenario is read, and a plan made, without NumPy
    import numpy as np
    from numpy.typing import NDArray

TIMES = ("ttft_s", "tpot_s", "e2e_s", "queue_s")


@dataclass(frozen=True, slots=True)
class WarmStart:
    """So many requests, by order of arrival, are not measured."""

    requests: int


@dataclass(frozen=True, slots=True)
class Measure:
    """A half-open interval of simulated time in seconds; ``until_s`` None: to the end.

    With ``warm_start`` it begins no sooner than with the first request after the warm-up.
    """

    after_s: float = 0.0
    until_s: float | None = None
    warm_start: WarmStart | None = None

    @property
    def is_whole(self) -> bool:
        """Whether everything is measured."""
        return self.after_s == 0 and self.until_s is None and self.warm_start is None

    def of(self, sent_s: NDArray[np.float64]) -> Measure:
        """The interval in a run whose requests were sent at these moments, in any order, the warm-up being over.

        >>> import numpy as np
        >>> Measure(warm_start=WarmStart(requests=2)).of(np.array([0.5, 2.0, 1.0]))
        Measure(after_s=2.0, until_s=None, warm_start=None)
        """
        if self.warm_start is None:
            return self
        import numpy as np

        warm = self.warm_start.requests
        begin = float(np.partition(sent_s, warm)[warm]) if warm < sent_s.size else np.inf
        return Measure(max(self.after_s, begin), self.until_s)

    def holds(self, time_s: NDArray[np.float64]) -> NDArray[np.bool_]:
        """Which moments lie in the interval.

        >>> import numpy as np
        >>> Measure(1.0, 3.0).holds(np.array([0.5, 1.0, 2.9, 3.0])).tolist()
        [False, True, True, False]
        """
        return (time_s >= self.after_s) & (time_s < (math.inf if self.until_s is None else self.until_s))

    def latencies(self, requests: Mapping[str, Any], times: Sequence[str] = TIMES) -> dict[str, Any]:
        """Mean and percentiles of the latencies of the measured requests."""
        import numpy as np

        sent = np.asarray(requests["arrival_s"])
        measured = self.of(sent).holds(sent)
        return {key: distribution(np.asarray(requests[key])[measured]) for key in times}

    def rates(self, requests: Mapping[str, Any]) -> dict[str, Any]:
        """What was measured, and rates over it; nothing when the whole run is, whose rates the summary has anyway.

        ``prefix_cache_hit_rate`` and ``preemptions`` in it are those of the measured requests.
        """
        if self.is_whole:
            return {}
        import numpy as np

        sent, finish = np.asarray(requests["arrival_s"]), np.asarray(requests["finish_s"])
        interval = self.of(sent)
        last = float(finish.max(initial=0.0))
        end = last if self.until_s is None else self.until_s
        begin = min(interval.after_s, max(end, last))  # where the warm-up takes all requests, at the end
        counted, done, length = interval.holds(sent), interval.holds(finish), max(end - begin, 0.0)
        tokens = int(np.asarray(requests["output_tokens"])[done].sum())
        prompts = int(np.asarray(requests["prompt_tokens"])[counted].sum())
        hits = int(np.asarray(requests["cached_tokens"])[counted].sum())
        return {
            "measured": {
                "after_s": begin,
                "until_s": end,
                "requests": int(counted.sum()),
                "prefix_cache_hit_rate": hits / prompts if prompts else None,
                "preemptions": int(np.asarray(requests["preemptions"])[counted].sum()),
            },
            "output_tokens_per_s": tokens / length if length else None,
            "requests_per_s": int(done.sum()) / length if length else None,
        }


def distribution(values: NDArray[np.float64]) -> dict[str, float | None]:
    """Mean and linear percentiles of the values that are numbers; all None when there are none.

    >>> import numpy as np
    >>> distribution(np.array([1.0, 2.0, np.nan]))["p50"]
    1.5
    """
    import numpy as np

    numbers = values[~np.isnan(values)]
    if numbers.size == 0:
        return dict.fromkeys(("mean", "p50", "p90", "p99"))
    p50, p90, p99 = np.percentile(numbers, [50, 90, 99])
    return {"mean": float(numbers.mean()), "p50": float(p50), "p90": float(p90), "p99": float(p99)}
