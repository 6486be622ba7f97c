"""Result files of ``vllm bench serve --save-result --save-detailed``: parallel arrays, one entry per request.

``start_times`` are seconds of a clock without a date. Failed requests stay in the arrays, with an ``errors`` entry or
without output; they are left out and counted. vllm 0.33.0 benchmarks/serve.py writes the file.
"""

from __future__ import annotations

from collections.abc import Iterator

from workloads.batch import RequestBatch
from workloads.clock import exact_ns
from workloads.content import PRIVATE_OUTPUT, PRIVATE_PROMPT, content_id
from workloads.errors import WorkloadError
from workloads.options import ReadOptions
from workloads.readers.fields import Fields
from workloads.readers.rows import Rows, text
from workloads.trace_file import TraceFile
from workloads.workload import Tally

SECOND = 10**9


def read(trace: TraceFile, tally: Tally, _: ReadOptions) -> Iterator[RequestBatch]:
    """The requests that were answered."""
    result = Fields(trace.document(), trace.label)
    prompts, outputs = result.integers("input_lens", 0, 10**9), result.integers("output_lens", 0, 10**9)
    starts, errors = result.items("start_times"), result.items("errors") or [""] * len(prompts)
    if not len(prompts) == len(outputs) == len(starts) == len(errors):
        raise WorkloadError(
            f"input_lens, output_lens, start_times and errors hold {len(prompts)}, {len(outputs)}, {len(starts)} and "
            f"{len(errors)} entries; save the result with --save-detailed",
            where=trace.label,
        )
    rows = Rows()
    for i, (prompt, output, start, error) in enumerate(zip(prompts, outputs, starts, errors, strict=True)):
        if type(start) not in (int, float) or not 0 <= start <= 10**9:
            raise result.bad(f"start_times[{i}]", start, "seconds from 0 to 10^9")
        if error or not prompt or not output:
            tally.skip("failed", 1)
            continue
        rows.add(
            str(i),
            exact_ns(start, SECOND),
            text([content_id(i, PRIVATE_PROMPT)], [prompt]),
            text([content_id(i, PRIVATE_OUTPUT)], [output]),
            where=trace.label,
        )
    if len(rows):
        yield rows.batch()
