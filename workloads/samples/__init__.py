"""Excerpts of published traces that come with the package; origin and licence of each are in README.md beside them."""

from __future__ import annotations

from pathlib import Path

from workloads.errors import unknown

FOLDER = Path(__file__).parent
ENDINGS = (".jsonl.gz", ".csv.gz")


def sample_names() -> list[str]:
    """The names that `sample_path` knows, sorted."""
    return sorted(file.name.partition(".")[0] for file in FOLDER.iterdir() if file.name.endswith(ENDINGS))


def sample_path(name: str) -> Path:
    """The file of the excerpt ``name``; raises `WorkloadError` with the nearest name when there is none."""
    for ending in ENDINGS:
        path = FOLDER / f"{name}{ending}"
        if name in sample_names() and path.is_file():
            return path
    raise unknown("sample", name, sample_names(), "workload.trace")
