"""Ranges of a log as Arrow batches with the columns that Spark wants, 1 to 4 MB each."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from sparklog.client.fetcher import fetch_range
from sparklog.client.metadata import ClusterMetadata
from sparklog.errors import ApiError
from sparklog.record.columnar import COLUMNS, ColumnarDecoder
from sparklog.spark.failures import translated
from sparklog.spark.losses import Losses, after_loss
from sparklog.spark.offsets import OffsetRange
from sparklog.spark.options import ReadOptions

BATCH_BYTES = 2 << 20


def read_ranges(options: ReadOptions, schema: StructType, ranges: Iterable[OffsetRange]) -> Iterator[pa.RecordBatch]:
    """The records of the ranges, in order; this is all that a task does."""
    with translated(), ClusterMetadata(options.client) as cluster:
        losses = Losses(fail=options.fail_on_data_loss)
        for each in ranges:
            yield from _RangeReader(cluster, losses, schema, each).batches()


class _RangeReader:
    def __init__(self, cluster: ClusterMetadata, losses: Losses, schema: StructType, wanted: OffsetRange) -> None:
        self._cluster = cluster
        self._losses = losses
        self._range = wanted
        self._position = wanted.start
        self._schema = to_arrow_schema(schema, timezone="UTC")
        # With none of its columns asked for, offsets are decoded to count the rows.
        decoded = [name for name in schema.names if name in COLUMNS] or ["offset"]
        self._decoder = ColumnarDecoder(decoded, timestamp_unit="us")
        self._constants = _Constants(wanted)

    def batches(self) -> Iterator[pa.RecordBatch]:
        while self._position < self._range.end:
            try:
                yield from self._read()
            except ApiError as error:
                self._position = after_loss(self._cluster, self._range, self._position, error, self._losses)
        if self._decoder.rows:
            yield self._finish()

    def _read(self) -> Iterator[pa.RecordBatch]:
        end = self._range.end
        source = fetch_range(self._cluster, self._range.tp, self._position, end, topic_id=self._range.topic_id)
        for batch in source:
            self._decoder.append(batch, self._position, end)
            self._position = max(self._position, batch.next_offset)
            if self._decoder.nbytes >= BATCH_BYTES:
                yield self._finish()
        self._position = end

    def _finish(self) -> pa.RecordBatch:
        rows = self._decoder.rows
        columns = self._decoder.finish()
        arrays = [
            columns[field.name] if field.name in columns else self._constants.column(field.name, rows)
            for field in self._schema
        ]
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)


class _Constants:
    """The columns that are the same all through a range; built once for each length."""

    def __init__(self, wanted: OffsetRange) -> None:
        self._values: dict[str, pa.Scalar] = {
            "topic": pa.scalar(wanted.tp.topic, pa.string()),
            "partition": pa.scalar(wanted.tp.partition, pa.int32()),
        }
        self._built: dict[str, pa.Array] = {}

    def column(self, name: str, rows: int) -> pa.Array:
        built = self._built.get(name)
        if built is None or len(built) != rows:
            built = self._built[name] = pa.repeat(self._values[name], rows)
        return built
