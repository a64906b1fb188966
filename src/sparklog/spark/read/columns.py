"""Reads ranges of a log into Arrow batches that have the columns Spark asks for.

A batch has 2 to 4 MB; only the last of a range is smaller. A single row that is larger is a batch of its own.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Iterator
from contextlib import closing

import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from sparklog.client.cluster.metadata import ClusterMetadata
from sparklog.client.consumer.fetch.range_reader import fetch_range
from sparklog.errors import ApiError, CorruptRecord, NotDirect
from sparklog.fetch.scan import unreadable
from sparklog.record.batch import RecordBatch
from sparklog.record.columnar import COLUMNS, ColumnarDecoder
from sparklog.spark.failures import translated
from sparklog.spark.read.data_loss import DataLossReporter, offset_after_loss
from sparklog.spark.read.direct import DAMAGED, DirectReader
from sparklog.spark.read.directories import DirectoryReader
from sparklog.spark.read.fetch_paths import ReadPathCounters
from sparklog.spark.read.offsets import OffsetRange
from sparklog.spark.read.options import ReadOptions
from sparklog.spark.worker_gc import freeze_imports

BATCH_BYTES = 2 << 20
"""Bytes after which a batch is complete. It may be much larger, since its last record batch may be large."""
MOST_BYTES = 2 * BATCH_BYTES
"""Bytes. A batch that is larger is sliced."""


def read_ranges(options: ReadOptions, schema: StructType, ranges: Iterable[OffsetRange]) -> Iterator[pa.RecordBatch]:
    """The records of the ranges, in order. This is the whole work of a task."""
    with translated():
        if options.directories:
            yield from _read_directories(options, schema, ranges)
        else:
            yield from _read_cluster(options, schema, ranges)
    freeze_imports()


def _read_directories(
    options: ReadOptions, schema: StructType, ranges: Iterable[OffsetRange]
) -> Iterator[pa.RecordBatch]:
    reader = DirectoryReader(options)
    for each in ranges:
        rows = _Rows(schema, each)
        yield from rows.decoded(reader.batches(each))
        yield from rows.rest()


def _read_cluster(options: ReadOptions, schema: StructType, ranges: Iterable[OffsetRange]) -> Iterator[pa.RecordBatch]:
    counters, data_loss = ReadPathCounters(), DataLossReporter(fail=options.fail_on_data_loss)
    ranges = list(ranges)
    with (
        ClusterMetadata(options.client) as cluster,
        closing(DirectReader(cluster, options.direct, counters, ranges)) as direct,
    ):
        for each in ranges:
            counters.ranges += 1
            yield from _RangeReader(cluster, data_loss, _Rows(schema, each), direct, counters).batches()
    counters.report()


class _Rows:
    """Decodes the batches of one range into Spark's columns. ``position`` is the next offset to decode."""

    def __init__(self, schema: StructType, wanted: OffsetRange) -> None:
        self.range = wanted
        self.position = wanted.start
        self._schema = to_arrow_schema(schema, timezone="UTC")
        # If the schema has none of these columns, offsets are decoded to count the rows.
        decoded = [name for name in schema.names if name in COLUMNS] or ["offset"]
        self._decoder = ColumnarDecoder(decoded, timestamp_unit="us")
        self._constants = _Constants(wanted, schema.names)

    def decoded(self, source: Iterator[RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Arrow batches, each as soon as it is complete."""
        for batch in source:
            try:
                self._decoder.append(batch, self.position, self.range.end)
            except CorruptRecord as error:
                raise unreadable(self.range.tp, batch, error) from error
            self.position = max(self.position, batch.next_offset)
            if self._decoder.nbytes + self._decoder.rows * self._constants.width >= BATCH_BYTES:
                yield from self._finish()

    def rest(self) -> Iterator[pa.RecordBatch]:
        """The last Arrow batch, if rows are left."""
        if self._decoder.rows:
            yield from self._finish()

    def _finish(self) -> Iterator[pa.RecordBatch]:
        rows = self._decoder.rows
        columns = self._decoder.finish()
        arrays = [
            columns[field.name] if field.name in columns else self._constants.column(field.name, rows)
            for field in self._schema
        ]
        yield from _pieces(pa.RecordBatch.from_arrays(arrays, schema=self._schema))


def _pieces(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    if batch.nbytes <= MOST_BYTES or batch.num_rows < 2:
        yield batch
    else:
        half = batch.num_rows // 2
        yield from _pieces(batch.slice(0, half))
        yield from _pieces(batch.slice(half))


class _RangeReader:
    """Reads one range from a cluster, from segment files or by Fetch."""

    def __init__(
        self,
        cluster: ClusterMetadata,
        data_loss: DataLossReporter,
        rows: _Rows,
        direct: DirectReader,
        counters: ReadPathCounters,
    ) -> None:
        self._cluster = cluster
        self._data_loss = data_loss
        self._rows = rows
        self._range = rows.range
        self._direct = direct
        self._counters = counters

    def batches(self) -> Iterator[pa.RecordBatch]:
        rows = self._rows
        while rows.position < self._range.end:
            try:
                yield from self._read()
            except ApiError as error:
                rows.position = offset_after_loss(self._cluster, self._range, rows.position, error, self._data_loss)
        yield from rows.rest()

    def _read(self) -> Iterator[pa.RecordBatch]:
        rows = self._rows
        if self._direct.is_wanted:
            try:
                yield from rows.decoded(self._direct.batches(self._range, rows.position))
            except NotDirect as error:
                if self._direct.is_required:
                    raise
                level = logging.WARNING if error.reason == DAMAGED else logging.INFO
                self._counters.fell_back(error.reason, error.detail, level)
            else:
                rows.position = self._range.end
        if rows.position < self._range.end:
            yield from rows.decoded(self._fetched())
            rows.position = self._range.end

    def _fetched(self) -> Iterator[RecordBatch]:
        wanted = self._range
        for batch in fetch_range(self._cluster, wanted.tp, self._rows.position, wanted.end, topic_id=wanted.topic_id):
            yield batch
            self._counters.fetched_bytes += batch.size_in_bytes


class _Constants:
    """The columns that are constant in a range. An array is reused while the number of rows is the same."""

    def __init__(self, wanted: OffsetRange, names: Collection[str]) -> None:
        self._values: dict[str, pa.Scalar] = {
            "topic": pa.scalar(wanted.tp.topic, pa.string()),
            "partition": pa.scalar(wanted.tp.partition, pa.int32()),
        }
        self._built: dict[str, pa.Array] = {}
        widths = {"topic": 4 + len(wanted.tp.topic), "partition": 4}
        self.width = sum(width for name, width in widths.items() if name in names)
        """Bytes of a row in the constant columns that the schema has."""

    def column(self, name: str, rows: int) -> pa.Array:
        built = self._built.get(name)
        if built is None or len(built) != rows:
            built = self._built[name] = pa.repeat(self._values[name], rows)
        return built
