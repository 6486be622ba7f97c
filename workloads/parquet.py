"""The one place that reads and writes Parquet: batches of columns, row group by row group."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from workloads.errors import WorkloadError

MAGIC = b"PAR1"
ROWS_AT_ONCE = 1 << 16


def is_parquet(path: Path) -> bool:
    """Whether a readable file starts as Parquet does."""
    try:
        with path.open("rb") as stream:
            return stream.read(len(MAGIC)) == MAGIC
    except OSError:
        return False


class ParquetFile:
    """An open Parquet file; raises `WorkloadError` for one that is damaged."""

    def __init__(self, path: Path, label: str) -> None:
        import pyarrow as pa
        import pyarrow.parquet as pq

        self.label = label
        self._errors = (pa.ArrowException, OSError, ValueError)  # the last: names that are not UTF-8
        try:
            self._file = pq.ParquetFile(path, pre_buffer=False)
            self.columns: list[str] = self._file.schema_arrow.names
            self.rows = int(self._file.metadata.num_rows)
        except self._errors as error:
            raise self._damaged(error) from None

    def batches(self, columns: Sequence[str]) -> Iterator[Any]:
        """Arrow record batches of these columns, at most 65,536 rows each."""
        try:
            yield from self._file.iter_batches(ROWS_AT_ONCE, columns=list(columns))
        except self._errors as error:
            raise self._damaged(error) from None

    def values(self, column: Any) -> list[Any]:
        """A column of a batch as Python values; moments in time as texts of ISO 8601."""
        try:
            return values(column)
        except self._errors as error:
            raise self._damaged(error) from None

    def _damaged(self, error: Exception) -> WorkloadError:
        reason = str(error).partition("\n")[0][:120]
        return WorkloadError(f"the Parquet file is damaged ({reason}); copy or download it again", where=self.label)


def values(column: Any) -> list[Any]:
    """A column as Python values; moments in time as texts of ISO 8601."""
    import pyarrow as pa

    if pa.types.is_temporal(column.type):
        column = column.cast(pa.timestamp("ns", tz=getattr(column.type, "tz", None)))
        stamps = np.asarray(column.cast(pa.int64()).to_numpy(zero_copy_only=False)).astype("datetime64[ns]")
        return [str(stamp) for stamp in stamps]
    return list(column.to_pylist())


def numbers(column: Any, dtype: str) -> NDArray[Any]:
    """A column without nulls as an array."""
    return np.ascontiguousarray(column.to_numpy(zero_copy_only=False)).astype(dtype, copy=False)


def lists(column: Any, dtype: str) -> tuple[NDArray[np.int64], NDArray[Any]]:
    """A column of lists as (counts, all items end to end)."""
    ends = np.asarray(column.offsets.to_numpy(zero_copy_only=False)).astype(np.int64)
    return np.diff(ends), numbers(column.flatten(), dtype)


class ParquetWriter:
    """Writes batches of columns, each as a row group; a column is an array, a list of texts, or (counts, items)."""

    def __init__(self, path: Path, metadata: Mapping[str, str]) -> None:
        self._path = path
        self._metadata = {**metadata}
        self._writer: Any = None

    def write(self, columns: Mapping[str, Any]) -> None:
        """Append one row group; every call must bring the same columns."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        table = pa.table({name: arrow(column) for name, column in columns.items()})
        if self._writer is None:
            schema = table.schema.with_metadata(self._metadata)
            self._writer = pq.ParquetWriter(self._path, schema, compression="zstd")
        self._writer.write_table(table.replace_schema_metadata(self._metadata))

    def close(self) -> None:
        """End the file."""
        if self._writer is not None:
            self._writer.close()


def arrow(column: Any) -> Any:
    """An Arrow array of one column. ``pyarrow.array`` of an array would look whether it is a pandas object."""
    import pyarrow as pa

    if isinstance(column, tuple):
        counts, items = column
        ends = np.concatenate(([0], np.cumsum(counts))).astype(np.int32)
        return pa.ListArray.from_arrays(plain(ends), plain(items))
    if isinstance(column, list):
        return pa.array(column, pa.string())
    return plain(column)


def plain(array: NDArray[Any]) -> Any:
    """An Arrow array over the memory of a numeric array."""
    import pyarrow as pa

    solid = np.ascontiguousarray(array)
    return pa.Array.from_buffers(pa.from_numpy_dtype(solid.dtype), len(solid), [None, pa.py_buffer(solid)])
