"""Requests as data: readers of published traces and seeded generators. Knows nothing of any simulator."""

from __future__ import annotations

from workloads.batch import RequestBatch
from workloads.clients import Clients, open_clients
from workloads.content import content_id
from workloads.errors import WorkloadError
from workloads.opening import open_workload
from workloads.samples import sample_names, sample_path
from workloads.workload import Workload

__all__ = [
    "Clients",
    "RequestBatch",
    "Workload",
    "WorkloadError",
    "content_id",
    "open_clients",
    "open_workload",
    "sample_names",
    "sample_path",
]
