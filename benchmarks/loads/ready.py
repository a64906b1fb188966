"""A Spark source of batches that are made once: the bound of every Python source of these columns."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from benchmarks.loads.records import NOW_MS, values
from sparklog.spark.schema import source_schema

_BATCH_BYTES = 2 << 20
"""As much as sparklog's own source hands to Spark at once."""


class ReadySource(DataSource):  # type: ignore[misc]
    """Options: ``size`` of a value in bytes, ``records`` in all, ``partitions``."""

    @classmethod
    def name(cls) -> str:
        return "ready"

    def schema(self) -> StructType:
        return source_schema(include_headers=False)

    def reader(self, schema: StructType) -> DataSourceReader:
        size, records, partitions = (int(self.options[name]) for name in ("size", "records", "partitions"))
        return _Reader(schema, size, records, partitions)


class _Reader(DataSourceReader):  # type: ignore[misc]
    def __init__(self, schema: StructType, size: int, records: int, partitions: int) -> None:
        self._schema = schema
        self._size = size
        self._records = records
        self._partitions = partitions

    def partitions(self) -> list[InputPartition]:
        return [InputPartition(number) for number in range(self._partitions)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        batch = _made(self._schema, self._size, partition.value)
        left = self._records // self._partitions
        while left > 0:
            yield batch.slice(0, left)
            left -= batch.num_rows


def _made(schema: StructType, size: int, partition: int) -> pa.RecordBatch:
    rows = _BATCH_BYTES // size
    pool = values(size)
    columns = {
        "key": pa.nulls(rows, pa.binary()),
        "value": pa.array([pool[number % len(pool)] for number in range(rows)], pa.binary()),
        "topic": pa.repeat("ready", rows),
        "partition": pa.repeat(pa.scalar(partition, pa.int32()), rows),
        "offset": pa.array(range(rows), pa.int64()),
        "timestamp": pa.repeat(pa.scalar(NOW_MS * 1000, pa.timestamp("us", "UTC")), rows),
        "timestampType": pa.repeat(pa.scalar(0, pa.int32()), rows),
    }
    return pa.RecordBatch.from_arrays(
        [columns[name] for name in schema.names], schema=to_arrow_schema(schema, timezone="UTC")
    )
