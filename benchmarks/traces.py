"""Reading traces: CPU-seconds until every request is there, and the memory that streaming a large one takes.

    python -m benchmarks.traces [mooncake] [parquet]

mooncake  the conversation trace (../shared/data/traces), opened and read to its end in a fresh process, the best of 5
parquet   10,000,000 requests of native Parquet, written to a temporary folder and streamed in batches of 4,096
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

from workloads.parquet import ParquetWriter
from workloads.readers.native_parquet import VERSION

ROOT = Path(__file__).resolve().parent.parent
MOONCAKE = ROOT.parent / "shared/data/traces/mooncake/conversation_trace.jsonl"
ROWS = 10_000_000
GROUP = 1 << 16

READ = """
import resource, sys, time
from pathlib import Path
from workloads import open_workload
began = time.process_time()
workload = open_workload({"trace": sys.argv[1]}, Path(), 0)
requests = sum(len(batch) for batch in workload.batches(4096))
seconds = time.process_time() - began
print(requests, seconds, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)
"""


def read(path: Path) -> tuple[int, float, float]:
    """Requests, CPU-seconds and peak MiB of a process that reads a trace and does nothing else."""
    command = [sys.executable, "-c", READ, str(path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    requests, seconds, peak = done.stdout.split()
    return int(requests), float(seconds), float(peak)


def write(path: Path) -> None:
    """A trace of `ROWS` requests at 100 per second with lengths of a conversation service."""
    rng = np.random.default_rng(0)
    writer = ParquetWriter(path, VERSION)
    before = 0
    for start in range(0, ROWS, GROUP):
        n = min(GROUP, ROWS - start)
        arrival = before + np.cumsum(np.rint(rng.exponential(1e7, n)).astype(np.int64))
        before = int(arrival[-1])
        prompt, output = (np.maximum(rng.lognormal(mu, 1.0, n), 1).astype(np.int64) for mu in (6.5, 4.8))
        writer.write({"arrival_ns": arrival, "prompt_tokens": prompt, "output_tokens": output})
    writer.close()


def mooncake() -> None:
    """Print the best of five."""
    requests, seconds, peak = min((read(MOONCAKE) for _ in range(5)), key=lambda one: one[1])
    print(f"mooncake   {requests:,} requests in {seconds:.2f} CPU-seconds, peak {peak:.0f} MiB")


def parquet() -> None:
    """Print time and memory of one pass."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "large.parquet"
        write(path)
        requests, seconds, peak = read(path)
        size = path.stat().st_size / 2**20
    print(f"parquet    {requests:,} requests ({size:.0f} MiB) in {seconds:.1f} CPU-seconds, peak {peak:.0f} MiB")


if __name__ == "__main__":
    known = {"mooncake": mooncake, "parquet": parquet}
    for name in sys.argv[1:] or known:
        known[name]()
