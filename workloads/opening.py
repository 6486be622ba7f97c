"""From the ``workload`` settings of a scenario to a workload."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from workloads.clients import KEYS as CLIENT_KEYS
from workloads.errors import WorkloadError, show
from workloads.generate import SyntheticWorkload
from workloads.replay import KEYS, open_trace
from workloads.settings import Settings
from workloads.workload import Workload


def open_workload(config: Mapping[str, Any], base_dir: Path, seed: int) -> Workload:
    """Open the workload of a scenario.

    ``config`` is ``{trace: PATH, format, limit, time_scale, jitter_s}``, PATH relative to ``base_dir`` or
    ``sample:NAME``, or ``{synthetic: {...}}``; who sends the requests is for `open_clients`. ``seed`` fixes everything
    random. Raises `WorkloadError`.
    """
    if type(seed) is not int or not 0 <= seed < 1 << 64:
        raise WorkloadError(f"{show(seed)} given; allowed: whole numbers from 0 to 2^64 - 1", where="seed")
    settings = Settings(config, "workload", (*KEYS, "synthetic", *CLIENT_KEYS))
    if "synthetic" not in settings:
        if "trace" not in settings:
            raise WorkloadError("give either a trace or a synthetic workload", where="workload")
        return open_trace(settings, base_dir, seed)
    others = [key for key in KEYS if key in settings]
    if others:
        raise WorkloadError(f"{', '.join(others)} cannot be given together with synthetic", where="workload")
    return SyntheticWorkload.from_settings(settings.values["synthetic"], base_dir, seed)
