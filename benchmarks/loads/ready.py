"""A Spark source of batches that are made once: the bound of every Python source of these columns.

It yields several of them in turn. Of many, more than caches hold, it is a bound that a real source can come near to:
the records of none lie in the processor's cache already.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from itertools import cycle

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from benchmarks.loads.records import NOW_MS, values
from benchmarks.spark_ways import READY_FORMAT
from sparklog.spark.schema import source_schema

_BATCH_BYTES = 2 << 20
"""As much as sparklog's own source hands to Spark at once."""


class ReadySource(DataSource):  # type: ignore[misc]
    """Options: ``size`` of a value in bytes, ``records`` in all, ``partitions``; ``batches`` made in each."""

    @classmethod
    def name(cls) -> str:
        return READY_FORMAT

    def schema(self) -> StructType:
        return source_schema(include_headers=False)

    def reader(self, schema: StructType) -> DataSourceReader:
        names = ("size", "records", "partitions", "batches")
        return _Reader(schema, *(int(self.options[name]) for name in names))


class _Reader(DataSourceReader):  # type: ignore[misc]
    def __init__(self, schema: StructType, size: int, records: int, partitions: int, batches: int) -> None:
        self._schema = schema
        self._size = size
        self._records = records
        self._partitions = partitions
        self._batches = batches

    def partitions(self) -> list[InputPartition]:
        return [InputPartition(number) for number in range(self._partitions)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        left = self._records // self._partitions
        for batch in cycle(_made(tuple(self._schema.names), self._size, partition.value, self._batches)):
            if left <= 0:
                return
            yield batch.slice(0, left)
            left -= batch.num_rows


@lru_cache(maxsize=1)
def _made(names: tuple[str, ...], size: int, partition: int, batches: int) -> list[pa.RecordBatch]:
    """The same records in each, but not at the same place; kept from one read of a worker to the next."""
    schema = to_arrow_schema(source_schema(include_headers=False), timezone="UTC")
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
    one = pa.RecordBatch.from_arrays([columns[field.name] for field in schema], schema=schema).select(list(names))
    return [pa.concat_batches([one.slice(0, rows // 2), one.slice(rows // 2)]) for _ in range(batches)]
