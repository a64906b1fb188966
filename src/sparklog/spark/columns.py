"""Ranges of a log as Arrow batches with the columns that Spark wants, 1 to 4 MB each."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator

import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from sparklog.client.fetcher import fetch_range
from sparklog.client.metadata import ClusterMetadata
from sparklog.errors import ApiError, NotDirect
from sparklog.record.batch import RecordBatch
from sparklog.record.columnar import COLUMNS, ColumnarDecoder
from sparklog.spark.direct import DAMAGED, DirectReader
from sparklog.spark.directories import DirectoryReader
from sparklog.spark.failures import translated
from sparklog.spark.losses import Losses, after_loss
from sparklog.spark.offsets import OffsetRange
from sparklog.spark.options import ReadOptions
from sparklog.spark.paths_taken import PathsTaken
from sparklog.spark.worker_heap import freeze_imports

BATCH_BYTES = 2 << 20


def read_ranges(options: ReadOptions, schema: StructType, ranges: Iterable[OffsetRange]) -> Iterator[pa.RecordBatch]:
    """The records of the ranges, in order; this is all that a task does."""
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
    taken, losses = PathsTaken(), Losses(fail=options.fail_on_data_loss)
    with ClusterMetadata(options.client) as cluster:
        direct = DirectReader(cluster, options.direct, taken)
        for each in ranges:
            taken.ranges += 1
            yield from _RangeReader(cluster, losses, _Rows(schema, each), direct, taken).batches()
    taken.report()


class _Rows:
    """The batches of one range as Spark's columns; ``position`` is the first offset that has not been decoded."""

    def __init__(self, schema: StructType, wanted: OffsetRange) -> None:
        self.range = wanted
        self.position = wanted.start
        self._schema = to_arrow_schema(schema, timezone="UTC")
        # With none of its columns asked for, offsets are decoded to count the rows.
        decoded = [name for name in schema.names if name in COLUMNS] or ["offset"]
        self._decoder = ColumnarDecoder(decoded, timestamp_unit="us")
        self._constants = _Constants(wanted)

    def decoded(self, source: Iterator[RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Whenever there is enough."""
        for batch in source:
            self._decoder.append(batch, self.position, self.range.end)
            self.position = max(self.position, batch.next_offset)
            if self._decoder.nbytes >= BATCH_BYTES:
                yield self._finish()

    def rest(self) -> Iterator[pa.RecordBatch]:
        """What has not been enough."""
        if self._decoder.rows:
            yield self._finish()

    def _finish(self) -> pa.RecordBatch:
        rows = self._decoder.rows
        columns = self._decoder.finish()
        arrays = [
            columns[field.name] if field.name in columns else self._constants.column(field.name, rows)
            for field in self._schema
        ]
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)


class _RangeReader:
    """One range of a cluster's partition, from segment files or by Fetch."""

    def __init__(
        self, cluster: ClusterMetadata, losses: Losses, rows: _Rows, direct: DirectReader, taken: PathsTaken
    ) -> None:
        self._cluster = cluster
        self._losses = losses
        self._rows = rows
        self._range = rows.range
        self._direct = direct
        self._taken = taken

    def batches(self) -> Iterator[pa.RecordBatch]:
        rows = self._rows
        while rows.position < self._range.end:
            try:
                yield from self._read()
            except ApiError as error:
                rows.position = after_loss(self._cluster, self._range, rows.position, error, self._losses)
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
                self._taken.fell_back(error.reason, error.detail, level)
            else:
                rows.position = self._range.end
        if rows.position < self._range.end:
            yield from rows.decoded(self._fetched())
            rows.position = self._range.end

    def _fetched(self) -> Iterator[RecordBatch]:
        wanted = self._range
        for batch in fetch_range(self._cluster, wanted.tp, self._rows.position, wanted.end, topic_id=wanted.topic_id):
            yield batch
            self._taken.fetched_bytes += batch.size_in_bytes


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
