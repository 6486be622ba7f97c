"""Columns become Parquet with units in their names and vLLM's metric names beside them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq

from sim.report.parquet import VLLM_METRICS, write_parquet


def test_values_come_back_and_nothing_is_null(tmp_path: Path) -> None:
    columns: dict[str, Any] = {
        "id": ["a", "ü", ""],
        "session": [None, "s", None],
        "prompt_tokens": np.array([1, 2, 3]),
        "tpot_s": np.array([0.5, np.nan, 0.25]),
        "skip_cache": np.array([True, False, True]),
    }
    write_parquet(tmp_path / "t.parquet", "requests", columns)
    assert pq.read_table(tmp_path / "t.parquet").to_pydict() == {
        "id": ["a", "ü", ""],
        "session": [None, "s", None],
        "prompt_tokens": [1, 2, 3],
        "tpot_s": [0.5, None, 0.25],
        "skip_cache": [1, 0, 1],
    }


def test_an_empty_table_keeps_its_columns(tmp_path: Path) -> None:
    write_parquet(tmp_path / "t.parquet", "steps", {"step": np.zeros(0, np.int64), "start_s": np.zeros(0)})
    table = pq.read_table(tmp_path / "t.parquet")
    assert (table.num_rows, table.column_names) == (0, ["step", "start_s"])


def test_columns_that_vllm_exports_name_its_metric(tmp_path: Path) -> None:
    columns = {"step": np.arange(2), "waiting_requests": np.arange(2)}
    write_parquet(tmp_path / "t.parquet", "steps", columns)
    schema = pq.read_schema(tmp_path / "t.parquet")
    assert schema.field("step").metadata is None
    assert schema.field("waiting_requests").metadata[b"vllm_metric"] == b"vllm:num_requests_waiting"


def test_strided_columns_are_written_as_they_read(tmp_path: Path) -> None:
    wide = np.arange(12).reshape(4, 3)
    write_parquet(tmp_path / "t.parquet", "steps", {"step": wide[:, 1]})
    assert pq.read_table(tmp_path / "t.parquet").to_pydict() == {"step": [1, 4, 7, 10]}


def test_metric_names_have_vllms_form() -> None:
    for metrics in VLLM_METRICS.values():
        assert all(name.startswith("vllm:") and name == name.lower() for name in metrics.values())
