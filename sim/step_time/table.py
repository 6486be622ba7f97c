"""Step times from a measured table: requests that decode x their mean context x prefill tokens of the step."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import numpy as np

from sim.core.price import TABLE, Price
from sim.core.price_table import Grid
from sim.step_time.constant import constant_price

AXES: Final = ("decodes", "context_tokens", "prefill_tokens")
"""The keys of a table's axes, in the order ``seconds`` is nested."""


def table_price(settings: Mapping[str, Any]) -> Price:
    """The price that looks a step up in the table of a checked ``step_time`` section.

    ``seconds[i][j][k]`` is the time of a step of ``decodes[i]`` decoding requests with a mean context of
    ``context_tokens[j]`` tokens and ``prefill_tokens[k]`` tokens of prompts.
    """
    decodes, context, prefill = (np.array(settings[name], np.float64) for name in AXES)
    ns = np.array(settings["seconds"], np.float64) * 1e9
    grid = Grid(decodes, context, prefill, ns, float(ns.min()), np.zeros(2, np.int64))
    return constant_price(0)._replace(kind=TABLE, grid=grid)
