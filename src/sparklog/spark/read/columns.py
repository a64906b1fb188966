"""Reads ranges of a log into Arrow batches that have the columns Spark asks for.

A batch has 2 to 4 MB; only the last of a range is smaller. A single row that is larger is a batch of its own.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import closing

import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from sparklog.client.cluster.metadata import ClusterMetadata
from sparklog.client.consumer.fetch.leased_files import DAMAGED
from sparklog.client.consumer.fetch.range_reader import fetch_range
from sparklog.errors import ApiError, CorruptRecord, NotDirect
from sparklog.fetch.scan import unreadable
from sparklog.record.batch import RecordBatch
from sparklog.record.columnar import COLUMNS, ColumnarDecoder
from sparklog.spark import throttling
from sparklog.spark.failures import translated
from sparklog.spark.read.data_loss import DataLossReporter, offset_after_loss
from sparklog.spark.read.direct import DirectReader
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
    ranges = list(ranges)
    with closing(LogReader(options, schema, ranges)) as log:
        for each in ranges:
            yield from log.batches(each)
        log.report()


AfterLoss = Callable[[ClusterMetadata, OffsetRange, int, ApiError, DataLossReporter], int]
"""Says where a read goes on that failed, as ``offset_after_loss`` does."""


class LogReader:
    """Reads ranges from a cluster, one after the other. Close it."""

    def __init__(
        self,
        options: ReadOptions,
        schema: StructType,
        ranges: Sequence[OffsetRange],
        after_loss: AfterLoss = offset_after_loss,
    ) -> None:
        """``ranges`` are those that will be asked for, as far as that is known: their files are opened together."""
        self._schema = schema
        self._after_loss = after_loss
        self._data_loss = DataLossReporter(fail=options.fail_on_data_loss)
        self._counters = ReadPathCounters()
        self._cluster = ClusterMetadata(options.client)
        self._direct = DirectReader(self._cluster, options.direct, self._counters, ranges)

    def close(self) -> None:
        self._direct.close()
        self._cluster.close()
        throttling.report(self._cluster.pool.throttling, self._cluster.config.client_id)

    def batches(self, wanted: OffsetRange) -> Iterator[pa.RecordBatch]:
        self._counters.ranges += 1
        rows = _Rows(self._schema, wanted)
        while rows.position < wanted.end:
            try:
                yield from self._read(rows)
            except ApiError as error:
                rows.position = self._after_loss(self._cluster, wanted, rows.position, error, self._data_loss)
        yield from rows.rest()

    def report(self) -> None:
        """Log how much was read in which way."""
        self._counters.report()

    def _read(self, rows: _Rows) -> Iterator[pa.RecordBatch]:
        if self._direct.is_wanted:
            try:
                yield from rows.decoded(self._direct.batches(rows.range, rows.position))
            except NotDirect as error:
                if self._direct.is_required:
                    raise
                level = logging.WARNING if error.reason == DAMAGED else logging.INFO
                self._counters.fell_back(error.reason, error.detail, level)
            else:
                rows.position = rows.range.end
        if rows.position < rows.range.end:
            yield from rows.decoded(self._fetched(rows.range, rows.position))
            rows.position = rows.range.end

    def _fetched(self, wanted: OffsetRange, position: int) -> Iterator[RecordBatch]:
        for batch in fetch_range(self._cluster, wanted.tp, position, wanted.end, topic_id=wanted.topic_id):
            yield batch
            self._counters.fetched_bytes += batch.size_in_bytes


class _Rows:
    """Decodes the batches of one range into Spark's columns. ``position`` is the next offset to decode."""

    def __init__(self, schema: StructType, wanted: OffsetRange) -> None:
        self.range = wanted
        self.position = wanted.start
        self._schema = to_arrow_schema(schema, timezone="UTC")
        # If the schema has none of these columns, offsets are decoded to count the rows.
        decoded = [name for name in schema.names if name in COLUMNS] or ["offset"]
        self._decoder = ColumnarDecoder(decoded, timestamp_unit="us")
        self._constants = Constants(wanted, schema.names)

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
        yield from pieces(pa.RecordBatch.from_arrays(arrays, schema=self._schema))


def pieces(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    if batch.nbytes <= MOST_BYTES or batch.num_rows < 2:
        yield batch
    else:
        half = batch.num_rows // 2
        yield from pieces(batch.slice(0, half))
        yield from pieces(batch.slice(half))


class Constants:
    """The columns that are constant in a range. An array is reused while the number of rows is the same."""

    def __init__(self, wanted: OffsetRange, names: Collection[str]) -> None:
        self._values: dict[str, pa.Scalar] = {
            "topic": pa.scalar(wanted.tp.topic, pa.string()),
            "partition": pa.scalar(wanted.tp.partition, pa.int32()),
        }
        self._built: dict[str, pa.Array] = {}
        self.names = self._values.keys()
        widths = {"topic": 4 + len(wanted.tp.topic), "partition": 4}
        self.width = sum(width for name, width in widths.items() if name in names)
        """Bytes of a row in the constant columns that the schema has."""

    def column(self, name: str, rows: int) -> pa.Array:
        built = self._built.get(name)
        if built is None or len(built) != rows:
            built = self._built[name] = pa.repeat(self._values[name], rows)
        return built
