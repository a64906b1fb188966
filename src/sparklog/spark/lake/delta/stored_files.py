"""Files that a Delta table has: who they are in its log, and how their rows are read.

Delta's own commands write them too (``OPTIMIZE``), so that times may be Parquet's INT96, and columns may be missing.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import fs

_BATCH_BYTES = 8 << 20
_MOST_ROWS = 1 << 16
"""Of a batch: a file that repeats its values is small, and its rows are not."""


class StoredFile(NamedTuple):
    """A file of a table, without rows that Delta has deleted by a deletion vector."""

    path: str
    """From the table's location on, without escapes."""
    size: int
    partition_values: dict[str, str | None]

    @classmethod
    def from_action(cls, add: dict[str, Any]) -> StoredFile:
        """Of Delta's ``add``. Raises ValueError for one that has deleted rows in it, or is of another table."""
        if add.get("deletionVector"):
            raise ValueError("rows of its files are deleted by deletion vectors; type: REORG TABLE ... APPLY (PURGE)")
        path = unquote(add["path"])
        if path.startswith("/") or ":/" in path:
            raise ValueError(f"its file {path} lies elsewhere: it is a shallow clone")
        return cls(path, int(add["size"]), dict(add["partitionValues"]))


class StoredRows:
    """Reads one file, in batches of about 8 MB, all in its order."""

    def __init__(self, filesystem: fs.FileSystem, path: str, schema: pa.Schema) -> None:
        """``schema`` has the columns of the table's files, as they are wanted."""
        self._fs = filesystem
        self._path = path
        self._schema = schema

    def batches(self, names: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """The columns of these names; those that the file lacks are null. Raises OSError, ArrowException."""
        schema = pa.schema([self._schema.field(name) for name in names])
        with (
            self._fs.open_input_file(self._path) as source,
            pq.ParquetFile(source, coerce_int96_timestamp_unit="us") as file,
        ):
            present = [name for name in names if name in file.schema_arrow.names]
            for batch in file.iter_batches(_batch_rows(file.metadata), columns=present):
                yield _conformed(batch, schema)


def _batch_rows(metadata: pq.FileMetaData) -> int:
    """Rows of about 8 MB together."""
    groups = (metadata.row_group(number) for number in range(metadata.num_row_groups))
    width = max((group.total_byte_size / max(group.num_rows, 1) for group in groups), default=1.0)
    return max(min(int(_BATCH_BYTES / max(width, 1.0)), _MOST_ROWS), 1)


def _conformed(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    columns = [
        batch.column(field.name).cast(field.type)
        if field.name in batch.schema.names
        else pa.nulls(batch.num_rows, field.type)
        for field in schema
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema)
