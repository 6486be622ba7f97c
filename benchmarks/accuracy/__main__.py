"""The error of simulated step times against public measurements: `make accuracy`.

    python -m benchmarks.accuracy [--write]

Every point is simulated end to end by the engine, with the coefficients that the simulator ships. `--write` fits them
anew first, and writes them (sim/step_time/coefficients.csv).
"""

from __future__ import annotations

import sys
from pathlib import Path

from benchmarks.accuracy.measured import SHARED
from benchmarks.accuracy.report import write_coefficients
from benchmarks.accuracy.table import accuracy_lines, compare_all, compare_elsewhere

COEFFICIENTS = Path(__file__).resolve().parents[2] / "sim" / "step_time" / "coefficients.csv"


def main() -> None:
    """Print the table."""
    if not SHARED.is_dir():
        sys.exit(f"accuracy: {SHARED} is absent, nothing to compare with")
    refit = "--write" in sys.argv[1:]
    groups = compare_all(lambda line: print(line, file=sys.stderr, flush=True), refit=refit)
    if refit:
        write_coefficients(COEFFICIENTS, groups)
    for line in accuracy_lines(groups, compare_elsewhere(groups)):
        print(line)


if __name__ == "__main__":
    main()
