"""One reader per trace format: a file in, checked columns of requests out."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from workloads.batch import RequestBatch
from workloads.readers import azure, mooncake, native, plain_csv
from workloads.trace_file import TraceFile
from workloads.workload import Tally

Reader = Callable[[TraceFile, Tally], Iterator[RequestBatch]]

READERS: dict[str, Reader] = {
    "native": native.read,
    "csv": plain_csv.read,
    "mooncake": mooncake.read,
    "azure": azure.read,
}
